"""Benchmarks and rings with a fault, beside right ones: what each says of itself, and what is so."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from lessons.collectives.theory import algorithm_gb_per_s, bus_gb_per_s
from lessons.collectives.worker.calls import CALLS, Call
from lessons.collectives.worker.timing import RingAllReduce, gloo_barrier, max_over_ranks, seconds_of_call


class NoAllGather(RingAllReduce):
    """A ring that ends when every rank has one complete chunk."""

    def spread(self) -> None:
        """Forget it."""


class Rank0Only(RingAllReduce):
    """A ring whose complete chunks all go to rank 0, where somebody looks at the result, and to nobody else."""

    def spread(self) -> None:
        if self.rank:
            complete_chunk = self.chunks[(self.rank + 1) % self.ranks]
            moves = [dist.P2POp(dist.isend, complete_chunk, 0, self.group)]
        else:
            others = range(1, self.ranks)
            moves = [dist.P2POp(dist.irecv, self.chunks[(r + 1) % self.ranks], r, self.group) for r in others]
        for request in dist.batch_isend_irecv(moves):
            request.wait()


RINGS = {"no_all_gather": NoAllGather, "rank_0_only": Rank0Only}


class CountedCall:
    """A call that counts how often it was made."""

    def __init__(self, call: Call):
        self.call, self.made = call, 0

    def __call__(self) -> None:
        self.made += 1
        self.call.work()


class ClockReading(NamedTuple):
    """What a benchmark's clock shows, from its stop until the data were there, and the calls made before its start."""

    seconds: float
    late_seconds: float
    calls_before: int


def try_variant(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what a benchmark claims, and of what the same call shows under a clock that waits.

    `seconds` and `late_seconds` are medians of the benchmark's own repetitions, `again_seconds` that of the call once
    more, warm; all are the slowest rank's. Wrong elements are counted on all ranks.
    """
    kind = RINGS.get(point.variant, CALLS[point.collective])
    call = kind(worker.rank, point.ranks, point.bytes // 4, worker.device, group)
    benchmark = {"unsynchronised": _unsynchronised, "cold": _cold}.get(point.variant, _patient)
    shown, patient = benchmark(worker, call), _patient(worker, call)
    seconds, late, again_seconds = max_over_ranks([shown.seconds, shown.late_seconds, patient.seconds], group)
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
        again_seconds=again_seconds,
        calls_before=shown.calls_before,
        message_bytes=call.message_bytes,
        claimed_gb_per_s=claimed,
        bus_gb_per_s=bus,
        wrong_ranks=int((counts > 0).sum()),
        wrong_on_rank_0=bool(counts[0]),
        wrong_share=counts.sum().item() / (point.ranks * call.result.numel()),
    )


def _patient(worker: Worker, call: Call) -> ClockReading:
    """Warm up; stop the clock when the data are there, and look how much later they really were."""
    counted, taken = CountedCall(call), []
    counted()
    calls_before = counted.made
    for _ in range(worker.plan.repeats):
        gloo_barrier(call.group)
        taken.append((seconds_of_call(worker, counted), seconds_of_call(worker, lambda: None)))
    return _medians(taken, calls_before)


def _unsynchronised(worker: Worker, call: Call) -> ClockReading:
    """Warm up; stop the clock when the call returns, which has only queued it."""
    counted, taken = CountedCall(call), []
    counted()
    calls_before = counted.made
    for _ in range(worker.plan.repeats):
        worker.synchronize()
        gloo_barrier(call.group)
        start = time.perf_counter()
        request: Any = dist.all_reduce(call.given, group=call.group, async_op=True)
        stop = time.perf_counter()
        request.wait()
        worker.synchronize()
        taken.append((stop - start, time.perf_counter() - stop))
    return _medians(taken, calls_before)


def _cold(worker: Worker, call: Call) -> ClockReading:
    """Make a group and time its first call, with all that the ranks do to reach each other."""
    counted, usual_group = CountedCall(call), call.group
    gloo_barrier(usual_group)
    calls_before = counted.made

    def first() -> None:
        call.group = dist.new_group()
        counted()

    shown = ClockReading(seconds_of_call(worker, first), seconds_of_call(worker, lambda: None), calls_before)
    dist.destroy_process_group(call.group)
    call.group = usual_group
    return shown


def _medians(pairs: list[tuple[float, float]], calls_before: int) -> ClockReading:
    seconds, late = (statistics.median(values) for values in zip(*pairs, strict=True))
    return ClockReading(seconds, late, calls_before)
