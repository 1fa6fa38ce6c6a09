"""Memory as the allocator's own history tells it, one collective timed alone, and training beside one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.labs.sharding.theory import MIB, fragments, timeline
from labkit.worker.clocks import fence
from labkit.worker.counting import Collectives
from labkit.worker.data import batches
from labkit.worker.equality import along, changes, mean, sgd
from labkit.worker.gpt import Gpt, samples
from labkit.worker.trainer import Trainer

_MOST_EVENTS = 1_000_000  # allocations, releases and reservations that the history holds; the oldest go first


def remembered(worker: Worker, phases: list[tuple[str, Callable[[], Any]]], iterations: int = 3) -> None:
    """Run the phases in order, `iterations` times, and append which memory was in use when; on a CPU, do nothing.

    `phases` are (name, work), the names "forward", "backward" and "optimizer"; what `work` returns is dropped, so
    its caller must keep a loss. The device is synchronised between phases.
    Rows: entry="memory timeline" (t_ms, base_mib, activations_mib, gradients_mib, optimizer_mib, temporary_mib,
    allocated_mib, reserved_mib, phase) and entry="segment" (segment_mib, allocated_mib, largest_free_mib, segments)
    at the end of the last backward, when the cache is most in pieces.
    """
    if worker.device.type != "cuda":
        return
    memory, marks, segments = torch.cuda.memory, [], []
    worker.synchronize()
    before = torch.cuda.memory_stats()
    memory._record_memory_history("all", context=None, max_entries=_MOST_EVENTS)
    try:
        for iteration in range(iterations):
            for name, work in phases:
                start_us = time.time_ns() / 1e3
                work()
                worker.synchronize()
                marks.append((name, start_us, time.time_ns() / 1e3))
                if name == "backward" and iteration == iterations - 1:
                    segments = torch.cuda.memory_snapshot(include_traces=False)
        events = memory._snapshot()["device_traces"][worker.device.index]
    finally:
        memory._record_memory_history(enabled=None)
    base, reserved = (before[f"{what}_bytes.all.current"] / MIB for what in ("requested", "reserved"))
    for row in timeline(events, marks, base, reserved):
        worker.record(entry="memory timeline", **row)
    for row in fragments(segment for segment in segments if segment["device"] == worker.device.index):
        worker.record(entry="segment", **row)


def time_collective(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Time one collective whose whole tensor has `kib` KiB, check its result, and append a row a repeat."""
    count = 256 * point.kib // point.ranks * point.ranks
    whole = torch.full((count,), float(worker.rank + 1), device=worker.device)
    part = torch.full((count // point.ranks,), float(worker.rank + 1), device=worker.device)
    total = point.ranks * (point.ranks + 1) / 2

    def work() -> torch.Tensor:
        if point.collective == "all-reduce":
            dist.all_reduce(whole, group=group)
            return whole
        if point.collective == "all-gather":
            dist.all_gather_into_tensor(whole, part, group=group)
            return whole
        dist.reduce_scatter_tensor(part, whole, group=group)
        return part

    def start() -> None:
        whole.fill_(worker.rank + 1)
        part.fill_(worker.rank + 1)
        fence(group)

    repeats = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for timing in worker.time(work, **repeats, before=start):
        mean = (point.ranks + 1) / 2 if point.collective == "all-gather" else total
        right = abs(timing.result.mean(dtype=torch.float64).item() / mean - 1) < 1e-6
        worker.record(
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            seconds=timing.seconds,
            whole_bytes=whole.nbytes,
            status="ok" if right else "wrong result",
        )


def compare(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what some steps did here and in one process that saw the same batches.

    `loss_error` and `update_error` are relative, `update_ratio` is the first step's change along the right one.
    `largest_share` is the largest tensor that a collective moved, and `exchanges` all gradients that a step reduced,
    both over the model's parameters.
    """
    plan = worker.plan
    tensors = samples(plan, plan.steps * point.batch, point.seed)
    reference = Trainer(Gpt(plan, point, worker.device), "single", None, worker.device, sgd)
    start = [weight.detach().clone() for weight in reference.weights()]
    trainer = Trainer(
        Gpt(plan, point, worker.device),
        point.strategy,
        group,
        worker.device,
        sgd,
        synced=point.synced,
        divide=point.variant != "undivided",
    )
    mine = batches(tensors, point.batch, worker.rank, point.ranks, point.seed)
    right = batches(tensors, point.batch, 0, 1, point.seed)
    losses, row = [], {}
    for step in range(plan.steps):
        own = zip(*(part.split(point.micro_batch) for part in next(mine)[:-1]), strict=True)
        with Collectives() as sent:
            loss = trainer.step(list(own))
        losses.append((mean(loss, group), reference.step([next(right)[:-1]]).item()))
        if step == 0:
            row["update_ratio"] = along(*changes(trainer, reference, start))
            whole = 4 * plan.model(point.vocabulary).parameters
            row["largest_share"] = sent.largest / whole
            reduced = sent.bytes["all-reduce"] + sent.bytes["reduce-scatter"]
            row["exchanges"] = reduced / whole
    change, right_change = changes(trainer, reference, start)
    row["update_error"] = ((change - right_change).norm() / right_change.norm()).item()
    row["loss_error"] = max(abs(loss / right - 1) for loss, right in losses)
    worker.record(entry="trial", iteration=0, micro_batches=point.micro_batches, **row)
