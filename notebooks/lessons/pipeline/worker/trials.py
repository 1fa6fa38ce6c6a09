"""What is measured beside a whole pipeline: a trial against the unpipelined model, and each part alone."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.bert import LABELS, Stage, loss_of
from labkit.worker.clocks import fence
from lessons.pipeline import bugs
from lessons.pipeline.plan import BY_HAND
from lessons.pipeline.theory.schedules import order_of
from lessons.pipeline.worker.by_hand import Link, run_steps
from lessons.pipeline.worker.pipe import Pipe, layers_of_stages, random_batch


def try_variant(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append one row a rank: how far outputs, loss and gradients are from the unpipelined model's, and what it holds.

    `output_error` and `loss_error` (last rank) and `gradient_error` are the largest difference over the largest value.
    `gradient_ratio` is the median of gradient over right gradient: 1, unless gradients are scaled wrongly. `parameters`
    counts what the rank holds, `all_parameters` the whole model. `step_ms` ends when the last rank is done,
    `claimed_ms` when the variant's own clock says so.
    """
    variant = bugs.VARIANTS.get(point.variant, {})
    whole = Stage(
        worker.plan, range(worker.plan.layers), point.seed, worker.device, point.precision, first=True, last=True
    )
    tokens, labels = random_batch(worker.plan, point.seed, worker.device)
    right_outputs = whole(tokens)
    right_loss = loss_of(right_outputs, labels)
    right_loss.backward()
    pipe = Pipe(
        worker,
        point,
        group,
        cutting=variant.get("cutting", layers_of_stages),
        scale_grads=variant.get("scale_grads", True),
    )
    if point.variant == BY_HAND:
        outputs, losses = None, _by_hand(worker, point, pipe, group)
    else:
        outputs, losses = pipe.run(keep_outputs=True)
    row: dict[str, Any] = _gradients(pipe, whole) if pipe.training else {}
    if pipe.last and outputs is not None:
        row["output_error"] = _error(outputs, right_outputs)
    if losses:
        row["loss"] = torch.stack(losses).mean()
        row["loss_error"] = _error(row["loss"], right_loss)
    row["parameters"] = sum(weight.numel() for module in pipe.modules.values() for weight in module.parameters())
    row["all_parameters"] = sum(weight.numel() for weight in whole.parameters())
    del whole
    clock = variant.get("clock", lambda step, worker: step())

    def step_of_all() -> float | None:
        claimed_s = clock(pipe.step, worker)
        worker.synchronize()
        fence(group)  # each rank times the step until the last one is done, whoever began it late
        return claimed_s

    for timing in worker.time(step_of_all, before=lambda: fence(group)):
        claim = {} if not isinstance(timing.result, float) else {"claimed_ms": 1e3 * timing.result}
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, step_ms=1e3 * timing.seconds, **row, **claim)


def _by_hand(worker: Worker, point: SimpleNamespace, pipe: Pipe, group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    """Run the pipe's stage once with the lesson's own loop; return the losses."""
    (stage,) = pipe.modules.values()
    plan, count = worker.plan, point.micro_batches
    shape = torch.Size((plan.batch // count, plan.sequence, plan.hidden))
    steps = order_of(point.schedule, point.ranks, count)[worker.rank]
    link = Link(worker.rank, point.ranks, shape, worker.device, group)
    return run_steps(steps, stage, link, pipe.tokens.chunk(count), pipe.labels.chunk(count))


def _gradient_of(part: nn.Module) -> torch.Tensor:
    """Return all gradients of a part as one vector; a weight that has none counts as zero."""
    grads = (torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in part.parameters())
    return torch.cat([grad.flatten() for grad in grads])


def _gradients(pipe: Pipe, whole: Stage) -> dict[str, float]:
    """Compare the gradients of this rank's stages with the whole model's, part by part."""
    errors, ratios, right = [], [], whole.parts()
    for module in pipe.modules.values():
        for name, part in module.parts().items():
            ours = _gradient_of(part)
            expected = _gradient_of(right[name])
            large = expected.abs() > expected.abs().max() / 10
            errors.append(_error(ours, expected))
            ratios.append((ours[large] / expected[large]).median().item())
    return {"gradient_error": max(errors), "gradient_ratio": sorted(ratios)[len(ratios) // 2]}


def _error(value: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference, as a share of the largest right value."""
    return ((value - right).abs().max() / right.abs().max()).item()


_LAYERS_AT_ONCE = 3  # as in a stage: what the host needs to start one hides behind the one before
_TRANSFERS = 10
_PARTS = {"embedding": {"first": True}, "layer": {}, "head": {"last": True}}


def time_parts(worker: Worker, point: SimpleNamespace) -> None:
    """Append, a part and repeat, its forward_ms and backward_ms on one micro-batch; all ranks work at the same time.

    Then transfer_ms: a hidden state of (batch / micro_batches, sequence, hidden) float32 from an even rank to the
    next, as the rank that receives sees it.
    """
    plan, samples = worker.plan, worker.plan.batch // point.micro_batches
    hidden = torch.randn(samples, plan.sequence, plan.hidden, device=worker.device, requires_grad=True)
    tokens = torch.randint(0, plan.vocabulary, (samples, plan.sequence), device=worker.device)
    for part, ends in _PARTS.items():
        count = _LAYERS_AT_ONCE if part == "layer" else 1
        stage = Stage(plan, range(count if part == "layer" else 0), point.seed, worker.device, point.precision, **ends)
        given = tokens if part == "embedding" else hidden
        shape = (samples, LABELS) if part == "head" else hidden.shape
        gradient = torch.randn(shape, device=worker.device)
        outputs = {}

        def forward(stage=stage, given=given, outputs=outputs):
            outputs["hidden"] = stage(given)

        def backward(outputs=outputs, gradient=gradient):
            outputs["hidden"].backward(gradient)

        for iteration in range(plan.warm_ups + plan.repeats):
            fence(None)
            with worker.clock() as there:
                forward()
            with worker.clock() as back:
                backward()
            row = {"forward_ms": 1e3 * there.seconds / count, "backward_ms": 1e3 * back.seconds / count}
            worker.record(part=part, iteration=iteration, warm_up=iteration < plan.warm_ups, **row)
    _time_transfer(worker, hidden.detach())


def _time_transfer(worker: Worker, hidden: torch.Tensor) -> None:
    """Send a hidden state from every even rank to the next one, and time it where it is received."""
    if worker.gpus < 2:
        return
    dist.all_reduce(torch.zeros(1, device=worker.device))  # connects all ranks: some have no neighbour below
    sends, peer = worker.rank % 2 == 0, worker.rank + 1 - 2 * (worker.rank % 2)
    for iteration in range(worker.plan.warm_ups + worker.plan.repeats):
        fence(None)
        worker.synchronize()
        start = time.perf_counter()
        for _ in range(_TRANSFERS if peer < worker.gpus else 0):
            operation = dist.P2POp(dist.isend if sends else dist.irecv, hidden, peer)
            for work in dist.batch_isend_irecv([operation]):
                work.wait()
        worker.synchronize()
        if not sends:
            row = {"transfer_ms": 1e3 * (time.perf_counter() - start) / _TRANSFERS, "mib": hidden.nbytes / MIB}
            worker.record(part="transfer", iteration=iteration, warm_up=iteration < worker.plan.warm_ups, **row)
