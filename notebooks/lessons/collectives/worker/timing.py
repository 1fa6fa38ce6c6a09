"""Two clocks for a collective, and repetitions of which each is verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.clocks import summary
from lessons.collectives import theory as ring
from lessons.collectives.worker.calls import AllReduce, Call, exchange


def timing_fields(worker: Worker, point: SimpleNamespace, call: Call, group: dist.ProcessGroup | None) -> dict:
    """Return what a point's row says of its time: a call's median and quartiles over the repetitions, and its status.

    A repetition lasts as long as on its slowest rank. After each one the buffers are filled anew and one more call, of
    the very kind that was timed, is checked element by element: one wrong element on one rank makes "wrong result".
    `first_seconds` is the point's very first call, in no median.
    """
    gloo_barrier(group)
    first = seconds_of_call(worker, call.work)
    work, clock = CLOCKS[point.clock](worker, call, point.in_flight)
    seconds, wrong = [], 0
    for _ in range(worker.plan.warm_ups + worker.plan.repeats):
        gloo_barrier(group)
        work()  # not timed: most collectives end nowhere before all have begun: all start the next one together
        seconds.append(clock())
        wrong += call.wrong(work)
    first, wrong, *seconds = max_over_ranks([first, wrong, *seconds], group)
    return {
        **summary(seconds[worker.plan.warm_ups :], "seconds"),
        "first_seconds": first,
        "message_bytes": call.message_bytes,
        "status": "wrong result" if wrong else "ok",
    }


def _in_flight(worker: Worker, call: Call, calls: int) -> tuple[Callable, Callable]:
    """Return the call, and a clock of `calls` calls that follow each other with no waiting between, as nccl-tests does.

    On a GPU the clock is two device events around them, so that their launches overlap with what is in flight: for
    large messages it tells the link's rate, for small ones how fast the host launches. gloo's calls but send/recv
    return when they are done; the host's clock times as many of them in a row.
    """
    calls_in_flight = partial(call.many, calls)
    if call.device.type == "cuda":
        return call.work, lambda: _between_events(calls_in_flight) / calls
    return call.work, lambda: seconds_of_call(worker, calls_in_flight) / calls


def _one_call(worker: Worker, call: Call, calls: int) -> tuple[Callable, Callable]:
    """Return the call, and the host's clock from one call until its data are there: the latency that a caller sees."""

    def alone() -> float:
        worker.synchronize()
        return seconds_of_call(worker, call.work)

    return call.work, alone


CLOCKS = {"in flight": _in_flight, "one call": _one_call}


def seconds_of_call(worker: Worker, work: Callable[[], None]) -> float:
    """Return the host's seconds from the start of `work` until its data are there."""
    start = time.perf_counter()
    work()
    worker.synchronize()
    return time.perf_counter() - start


def _between_events(work: Callable[[], None]) -> float:
    """Return the device's seconds between two events around what `work` launches."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def max_over_ranks(values: list[float], group: dist.ProcessGroup | None) -> list[float]:
    """Return the largest of each value over all ranks, over gloo."""
    largest = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    return largest.tolist()


def gloo_barrier(group: dist.ProcessGroup | None) -> None:
    """Wait for all ranks of the group, over gloo: no GPU kernel runs."""
    max_over_ranks([0.0], group)


class RingAllReduce(AllReduce):
    """An all-reduce made of sends to the next rank and receives from the one before; `sent_bytes` counts the last."""

    ring_step = staticmethod(ring.move)  # or yours

    def steps(self) -> int:
        return ring.steps_of(self.ranks)

    def work(self) -> None:
        chunks = self.given.split(ring.chunk_lengths(self.elements, self.ranks))
        room, self.sent_bytes = torch.empty_like(chunks[0]), 0  # the first chunk is the longest
        for step in range(self.steps()):
            send, receive, add = self.ring_step(self.rank, step, self.ranks)
            arriving = room[: len(chunks[receive])] if add else chunks[receive]
            for request in exchange(chunks[send], arriving, self.rank, self.ranks, self.group):
                request.wait()
            if add:
                chunks[receive].add_(arriving)
            self.sent_bytes += chunks[send].nbytes
