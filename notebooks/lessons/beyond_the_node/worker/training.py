"""Training steps over two nodes: replicated, sharded over all ranks, sharded inside each node, or mostly alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # an optimizer imports it: here it is loaded once, not by every worker of every launch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.worker import Worker
from labkit.worker.transformer import Transformer
from lessons.beyond_the_node.plan import LocalSteps
from lessons.beyond_the_node.worker.link import sent_bytes

_RATE = 1e-3
_FOLLOWERS = 4  # how many tokens may follow a token in the made text: log 4 is the least mean loss
Batch = tuple[torch.Tensor, torch.Tensor]


def time_steps(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per step and rank: its time, and what its node has sent meanwhile."""
    model = _model(worker, point.seed)
    gradient_bytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    wrapped = _wrap(worker, model, point)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=_RATE)
    text = _made_text(worker, point.seed, worker.rank)
    counted: list[int] = []

    def begin() -> None:
        worker.barrier()
        counted.append(sent_bytes())

    def step() -> None:
        for number in range(point.accumulation):
            with _gradient_sync(wrapped, point.strategy, number == point.accumulation - 1):
                (wrapped(*next(text)) / point.accumulation).backward()
        optimizer.step()
        optimizer.zero_grad()

    timings = [*worker.time(step, before=begin)]
    begin()
    for timing, (before, after) in zip(timings, pairwise(counted), strict=True):
        sent = after - before if worker.local_rank == 0 else None
        row = {"step_ms": 1e3 * timing.seconds, "gradient_bytes": gradient_bytes, "sent_bytes": sent}
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, **row)


def _wrap(worker: Worker, model: nn.Module, point: SimpleNamespace) -> Any:
    if point.strategy == "alone":
        return model
    if point.strategy == "ddp":
        device_ids = [worker.device] if worker.device.type == "cuda" else None
        options: dict[str, Any] = {"device_ids": device_ids, "gradient_as_bucket_view": True}
        return DistributedDataParallel(model, bucket_cap_mb=point.bucket_mb, **options)
    # Of two dimensions, the model is replicated along the first and sharded along the second.
    meshes = {"fsdp": {"all": worker.gpus}, "hsdp": {"nodes": worker.nodes, "inside": worker.gpus // worker.nodes}}
    named = meshes[point.strategy]
    mesh = init_device_mesh(worker.device.type, tuple(named.values()), mesh_dim_names=tuple(named))
    blocks: Any = model.blocks
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _gradient_sync(wrapped: Any, strategy: str, enabled: bool) -> Any:
    """Say whether the next backward exchanges gradients."""
    if strategy in ("fsdp", "hsdp"):
        wrapped.set_requires_gradient_sync(enabled)
    return wrapped.no_sync() if strategy == "ddp" and not enabled else nullcontext()


def train_apart(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per step and rank: its loss before the step, and what its node has sent since the first step.

    The last row of each rank also has `final_loss`, of the weights after the last step on text that no rank has
    trained on, and `apart`: the largest difference of a weight from rank 0's.
    """
    plan: LocalSteps = worker.plan
    model = _model(worker, point.seed)
    weights = [*model.parameters()]
    inner = torch.optim.AdamW(weights, lr=plan.rate)
    shared = [weight.detach().clone().requires_grad_() for weight in weights]
    outer = torch.optim.SGD(shared, lr=plan.outer_rate, momentum=plan.outer_momentum, nesterov=True)
    text, held_out = _made_text(worker, point.seed, worker.rank), next(_made_text(worker, point.seed, worker.gpus))
    worker.barrier()
    begun = sent_bytes()
    for step in range(plan.steps):
        loss = model(*next(text))
        loss.backward()
        if point.every == 1:
            _average(worker, [weight.grad for weight in weights])
        inner.step()
        inner.zero_grad()
        if point.every > 1 and (step + 1) % point.every == 0:
            _move_shared(worker, weights, shared, outer)
        row: dict[str, Any] = {"loss": loss.item(), "sent_bytes": sent_bytes() - begun}
        if step == plan.steps - 1:
            worker.barrier()
            row |= {"sent_bytes": sent_bytes() - begun, "apart": _difference_from_rank_0(weights)}
            with torch.no_grad():
                row["final_loss"] = model(*held_out).item()
        worker.record(iteration=step, warm_up=False, **row)


def _move_shared(worker: Worker, weights: list[Any], shared: list[Any], outer: torch.optim.Optimizer) -> None:
    """Move the shared weights by the ranks' mean distance from them, as a gradient, and take them over."""
    for weight, common in zip(weights, shared, strict=True):
        common.grad = common.detach() - weight.detach()
    _average(worker, [common.grad for common in shared])
    outer.step()
    with torch.no_grad():
        for weight, common in zip(weights, shared, strict=True):
            weight.copy_(common)


def _average(worker: Worker, tensors: list[Any]) -> None:
    """Average tensors over all ranks, in one all-reduce."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= worker.gpus
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def _difference_from_rank_0(weights: Iterable[torch.Tensor]) -> float:
    flat = torch.cat([weight.detach().flatten() for weight in weights])
    first = flat.clone()
    dist.broadcast(first, src=0)
    return (flat - first).abs().max().item()


def _model(worker: Worker, seed: int) -> nn.Module:
    plan = worker.plan
    torch.manual_seed(seed)
    shape = (plan.vocabulary, plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads)
    return Transformer(*shape).to(worker.device)


def _made_text(worker: Worker, seed: int, part: int) -> Iterator[Batch]:
    """Yield batches of made text without end: each token is followed by one of few, the same few in every part."""
    plan = worker.plan
    followers = torch.randint(plan.vocabulary, (plan.vocabulary, _FOLLOWERS), generator=_generator(seed))
    generator = _generator(1_000 * (seed + 1) + part)
    while True:
        tokens = torch.empty(plan.samples, plan.sequence + 1, dtype=torch.long)
        tokens[:, 0] = torch.randint(plan.vocabulary, (plan.samples,), generator=generator)
        choices = torch.randint(_FOLLOWERS, (plan.samples, plan.sequence), generator=generator)
        for place in range(plan.sequence):
            tokens[:, place + 1] = followers[tokens[:, place], choices[:, place]]
        tokens = tokens.to(worker.device)
        yield tokens[:, :-1], tokens[:, 1:]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
