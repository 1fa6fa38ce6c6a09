"""Benchmarks and rings with a fault, beside right ones: what each says of itself, and what is so."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from lessons.collectives.theory import algorithm_gb_per_s, bus_gb_per_s
from lessons.collectives.worker.calls import CALLS, Call
from lessons.collectives.worker.timing import RingAllReduce, gloo_barrier, max_over_ranks, seconds_of_call


class NoAllGather(RingAllReduce):
    """A ring that ends when every rank has one complete chunk."""

    def steps(self) -> int:
        return self.ranks - 1


def try_variant(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what a benchmark claims, and of what is so.

    `seconds` is what its clock shows, `late_seconds` from its stop until the data were there; both are medians of the
    slowest rank. Wrong elements are counted on all ranks.
    """
    kind = NoAllGather if point.variant == "no_all_gather" else CALLS[point.collective]
    call = kind(worker.rank, point.ranks, point.bytes // 4, worker.device, group)
    benchmark = _unsynchronised if point.variant == "unsynchronised" else _patient
    seconds, late = max_over_ranks(benchmark(worker, call), group)
    counts = torch.zeros(point.ranks, dtype=torch.int64)
    counts[worker.rank] = call.wrong()
    dist.all_reduce(counts, group=group)
    if worker.rank:
        return
    bus = bus_gb_per_s(point.collective, point.ranks, call.message_bytes, seconds)
    claimed = algorithm_gb_per_s(call.message_bytes, seconds) if point.variant == "wrong_factor" else bus
    worker.record(
        seconds=seconds,
        late_seconds=late,
        message_bytes=call.message_bytes,
        claimed_gb_per_s=claimed,
        bus_gb_per_s=bus,
        wrong_ranks=int((counts > 0).sum()),
        wrong_share=counts.sum().item() / (point.ranks * call.result.numel()),
    )


def _patient(worker: Worker, call: Call) -> list[float]:
    """Warm up; stop the clock when the data are there, and look how much later they really were."""
    taken = []
    call.work()
    for _ in range(worker.plan.repeats):
        gloo_barrier(call.group)
        taken.append((seconds_of_call(worker, call.work), seconds_of_call(worker, lambda: None)))
    return _medians(taken)


def _unsynchronised(worker: Worker, call: Call) -> list[float]:
    """Warm up; stop the clock when the call returns, which has only queued it."""
    taken = []
    call.work()
    for _ in range(worker.plan.repeats):
        worker.synchronize()
        gloo_barrier(call.group)
        start = time.perf_counter()
        request: Any = dist.all_reduce(call.given, group=call.group, async_op=True)
        stop = time.perf_counter()
        request.wait()
        worker.synchronize()
        taken.append((stop - start, time.perf_counter() - stop))
    return _medians(taken)


def _medians(pairs: list[tuple[float, float]]) -> list[float]:
    return [statistics.median(values) for values in zip(*pairs, strict=True)]
