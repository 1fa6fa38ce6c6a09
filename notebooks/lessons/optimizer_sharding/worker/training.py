"""Training with each optimizer (whole states, torch's sharded one, ours): steps, updates, and what a rank holds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.clocks import fence
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.counting import SavedTensors
from labkit.worker.strategies import held_bytes
from labkit.worker.transformer import seeded_transformer
from lessons.optimizer_sharding.plan import OUR_BUCKETS, YOURS, ZERO, Sharding
from lessons.optimizer_sharding.worker.sharded import ShardedOptimizer
from lessons.optimizer_sharding.worker.zero import ZeroOptimizer, with_momentum_step, with_update_all

_KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 1e-2}),
    "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}

_SMALL_BYTES = MIB  # of a gradient that is not worth a call of its own


def make_optimizer(
    parameters: Iterable,
    point: SimpleNamespace,
    group: dist.ProcessGroup | None = None,
    sharded: type = ShardedOptimizer,
) -> torch.optim.Optimizer:
    """Return the point's optimizer of parameters (or parameter groups) in the point's way."""
    kind, options = _KINDS[point.optimizer]
    options = options | {point.kernel: True}
    if point.way == "unsharded":
        return kind(parameters, **options)
    if point.way in OUR_BUCKETS:
        return sharded(parameters, kind, group, bucket_mib=point.bucket_mib, **options)
    in_buckets = point.way == "zero_buckets"
    return ZeroRedundancyOptimizer(parameters, kind, group, parameters_as_bucket_view=in_buckets, **options)


def sharded_kind(plan: Sharding, way: str) -> type[ShardedOptimizer]:
    """Return the class of a way with our buckets; a student's function is in the plan's file for it."""
    if function := YOURS.get(way):
        written = load_function(Path(getattr(plan, function)), function)
        return (with_update_all if function == "update_all" else with_momentum_step)(written)
    return ZeroOptimizer if way == ZERO else ShardedOptimizer


def _local_update(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return what updates this rank's elements and sends nothing."""
    if isinstance(optimizer, ShardedOptimizer):
        return lambda: [optimizer.update(bucket) for bucket in optimizer.buckets]
    return getattr(optimizer, "optim", optimizer).step


def states(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors of states that this rank holds, but counts of steps."""
    bucket_optimizers = [bucket.optimizer for bucket in getattr(optimizer, "buckets", [])]
    optimizers = bucket_optimizers or [getattr(optimizer, "optim", optimizer)]
    for state in (state for inner_optimizer in optimizers for state in inner_optimizer.state.values()):
        yield from (value for value in state.values() if torch.is_tensor(value) and value.dim())


def average(parameters: Iterable[torch.Tensor]) -> None:
    """Replace every gradient by its mean over the ranks (lab 10): small ones in one call, large ones in one each."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    small = [gradient for gradient in gradients if gradient.nbytes < _SMALL_BYTES]
    flat = torch.cat([gradient.flatten() for gradient in small]) if small else torch.empty(0)
    sent = [gradient for gradient in gradients if gradient.nbytes >= _SMALL_BYTES] + ([flat] if small else [])
    works: list[Any] = [dist.all_reduce(tensor, async_op=True) for tensor in sent]
    for work in works:
        work.wait()
    torch._foreach_div_(sent, dist.get_world_size())
    for gradient, mean in zip(small, flat.split([parameter.numel() for parameter in small]), strict=True):
        gradient.copy_(mean.view_as(gradient))


class Replica:
    """The course's transformer on one rank, equal on all, with the point's optimizer, and a batch of its own."""

    def __init__(self, plan: Sharding, point: SimpleNamespace, rank: int, device: torch.device):
        self.model = seeded_transformer(plan, point.seed, device)
        kind = sharded_kind(plan, point.way)
        self.optimizer = make_optimizer(self.model.parameters(), point, sharded=kind)
        self.batch = batch(plan, point.seed, rank, device)

    def forward(self) -> torch.Tensor:
        return self.model(*self.batch)

    def gradients(self) -> torch.Tensor:
        """Run forward and backward, average the gradients over the ranks, and give this rank's loss."""
        loss = self.own_gradients()
        average(self.model.parameters())
        return loss

    def own_gradients(self) -> torch.Tensor:
        """Run forward and backward, and give this rank's loss."""
        loss = self.forward()
        loss.backward()
        return loss.detach()

    def exchange(self) -> None:
        """Update the weights of all ranks with the mean of their gradients, which this rank has of its own samples."""
        if not isinstance(self.optimizer, ZeroOptimizer):
            average(self.model.parameters())
        self.optimizer.step()

    def step(self) -> torch.Tensor:
        """Run one whole step and give this rank's loss."""
        loss = self.gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def batch(plan: Sharding, seed: int, rank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a rank's random tokens and targets (samples, sequence)."""
    generator = torch.Generator(device).manual_seed(1000 * seed + rank)
    shape = (2, plan.samples, plan.sequence)
    tokens, targets = torch.randint(plan.vocabulary, shape, generator=generator, device=device)
    return tokens, targets


def time_steps(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row an iteration of each part: "step" (all of it), "update" (with its sending), "local" (without).

    All ranks start together. What is sent only where it is timed: after "local" the replicas are no longer equal.
    """
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    parts = {
        "step": (replica.step, lambda: None),
        "update": (replica.optimizer.step, replica.gradients),
        "local": (_local_update(replica.optimizer), replica.gradients),
    }
    for part, (work, ahead) in parts.items():
        for timing in _timings(worker, replica, work, ahead):
            worker.record(part=part, iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds)


def time_exchanges(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row an iteration: from the gradients of each rank to new weights on all ranks, started together."""
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    for timing in _timings(worker, replica, replica.exchange, replica.own_gradients):
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds)


def _timings(worker: Worker, replica: Replica, work, ahead):
    """Time `work` as often as the plan says; `ahead` brings the gradients that it needs, outside the clock."""

    def before() -> None:
        replica.optimizer.zero_grad()
        ahead()
        worker.synchronize()
        fence(None)

    return worker.time(work, before=before)


def measure_memory(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row a moment: what is held there, and the most that was held since the moment before.

    Moments: "built", then for step 0 and 1 "before update" and "after update". Bytes of parameters, gradients and
    states are those of this rank's tensors; on a GPU `allocated_mib` and `peak_mib` are the allocator's. The row of
    step 0 before its update also has `activations_mib`, which forward saved. At last a row a kind of collective that
    an update calls (entry "traffic").
    """
    gpu, ledger = worker.device.type == "cuda", Ledger(worker)
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    ledger.note(replica, "built", 0)
    for step in range(2):
        more = {}
        if step == 0:
            with (saved := SavedTensors()):
                loss = replica.forward()
            loss.backward()  # what a hook saw saved is let go by a backward alone
            replica.optimizer.zero_grad()
            del loss
            more = {"activations_mib": saved.bytes / MIB}
            ledger.start()
        replica.gradients()
        ledger.note(replica, "before update", step, **more)
        replica.optimizer.step()
        ledger.note(replica, "after update", step)
        replica.optimizer.zero_grad()
        ledger.start()
    replica.gradients()
    with CollectiveCounter() as sent:
        replica.optimizer.step()
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
    if gpu:
        worker.synchronize()


class Ledger:
    """Notes moments; the allocator's peak counts from the moment before."""

    def __init__(self, worker: Worker):
        self.worker, self.gpu = worker, worker.device.type == "cuda"
        gc.collect()
        self.start()
        self.base = torch.cuda.memory_allocated() if self.gpu else 0  # what an earlier point has left

    def start(self) -> None:
        """Have the allocator's peak count from here."""
        if self.gpu:
            self.worker.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def note(self, replica: Replica, moment: str, step: int, **more) -> None:
        """Append what this rank holds now."""
        parameters = list(replica.model.parameters())
        row = {
            "parameters": held_bytes(parameters),
            "states": held_bytes(states(replica.optimizer)),
            "gradients": held_bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        }
        if self.gpu:
            self.worker.synchronize()
            row |= {
                "allocated": torch.cuda.memory_allocated() - self.base,
                "peak": torch.cuda.max_memory_allocated() - self.base,
            }
        sizes = {f"{name}_mib": size / MIB for name, size in row.items()}
        self.worker.record(entry="memory", moment=moment, step=step, base_mib=self.base / MIB, **sizes, **more)
        self.start()
