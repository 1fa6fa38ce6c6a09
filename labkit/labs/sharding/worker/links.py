"""Collectives alone, by size."""

from __future__ import annotations

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.clocks import fence


def time_collective(worker: Worker, point, group: dist.ProcessGroup | None) -> None:
    """Time one collective whose whole tensor has `kib` KiB, check what it gives, and append a row a repeat."""
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

    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for timing in worker.time(work, **often, before=start):
        mean = (point.ranks + 1) / 2 if point.collective == "all-gather" else total
        right = abs(timing.result.mean(dtype=torch.float64).item() / mean - 1) < 1e-6
        worker.record(
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            seconds=timing.seconds,
            whole_bytes=whole.nbytes,
            status="ok" if right else "wrong result",
        )
