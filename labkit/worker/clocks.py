"""When each step ran, on every rank, on one clock: device events on a GPU, the system's clock on a CPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine import node_clock

CLOCK_COMPARISONS = 20  # how often the device's clock and the host's are compared; the closest look counts


def summary(times: Sequence[float], name: str) -> dict[str, float]:
    """Return a row's median as `name`, its quartiles as low_ and high_`name`, and the number of repetitions.

    A quartile lies between the least and the largest time ("inclusive"), as everywhere in the tables.
    """
    once = [*times] * 3
    low, median, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else once
    return {name: median, f"low_{name}": low, f"high_{name}": high, "repeats": len(times)}


class Tape:
    """Records begin and end of the work inside its spans, while `on` is set.

    On a GPU both are device events on the compute stream: work that the stream does not yet do has not begun, and the
    time that it waits for a receive lies between two spans, not in one.
    """

    def __init__(self, device: torch.device):
        self.on, self.gpu, self.marks = False, device.type == "cuda", []

    def now(self) -> Any:
        """Return this moment: an event in the stream, or seconds."""
        if not self.gpu:
            return node_clock.now()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def with_span(self, kind: str, stage: int, work: Callable) -> Callable:
        """Return `work`, whose first argument is the micro-batch, as a function that also records its span."""

        def spanned(micro_batch: int, *arguments, **named):
            partly = kind == "B" and named.get("full_backward") is False
            with self.span("I" if partly else kind, stage, micro_batch):
                return work(micro_batch, *arguments, **named)

        return spanned

    @contextmanager
    def span(self, kind: str, stage: int, micro_batch: int) -> Iterator[None]:
        """Record what is done inside as one span."""
        begin = self.now() if self.on else None
        yield
        if begin is not None:
            self.marks.append((kind, stage, micro_batch, begin, self.now()))

    def seconds(self, zero: Clock) -> list[tuple[str, int, int, float, float]]:
        """Return the spans (kind, stage, micro_batch, start, end) in host seconds; call it when the device is idle."""
        marks, self.marks = self.marks, []
        return [(*what, zero.seconds(begin), zero.seconds(end)) for *what, begin, end in marks]


class Clock:
    """Turns a rank's moments into seconds of the monotonic clock of rank 0's node, which all ranks share.

    A device event is recorded while the GPU is idle, and the host's clock read before and after it completes: the
    event lies in between. `skew_us` is half of the shortest such interval: by no more is this rank's clock off, apart
    from drift, which a second look after the step measures.
    """

    def __init__(self, device: torch.device):
        self.gpu = device.type == "cuda"
        self.anchor: Any = None
        self.host, self.skew_us = 0.0, 0.0
        if self.gpu:
            self.anchor, self.host, self.skew_us = self._read_both()

    def _read_both(self) -> tuple[torch.cuda.Event, float, float]:
        torch.cuda.synchronize()
        readings = []
        for _ in range(CLOCK_COMPARISONS):
            event = torch.cuda.Event(enable_timing=True)
            before = node_clock.now()
            event.record()
            event.synchronize()
            after = node_clock.now()
            readings.append(((after - before) / 2, (after + before) / 2, event))
        half, middle, event = min(readings, key=lambda reading: reading[0])
        return event, middle, 1e6 * half

    def seconds(self, moment: Any) -> float:
        return self.host + self.anchor.elapsed_time(moment) / 1e3 if self.gpu else moment

    def look_again(self) -> None:
        """Add to `skew_us` by how much the two clocks have drifted apart since."""
        if self.gpu:
            event, middle, half_us = self._read_both()
            self.skew_us = max(self.skew_us, half_us) + 1e6 * abs(self.seconds(event) - middle)


def fence(group: dist.ProcessGroup | None) -> float:
    """Wait for all ranks of the group, over gloo (no GPU kernel runs), and give the latest's host seconds to all."""
    latest = torch.tensor([node_clock.now()], dtype=torch.float64)
    dist.all_reduce(latest, dist.ReduceOp.MAX, group=group)
    return latest.item()


def clock_mhz(device: torch.device) -> dict[str, float]:
    """Return `sm_mhz`, the clock of the GPU's multiprocessors now; nothing where it cannot be read."""
    if device.type != "cuda":
        return {}
    try:
        return {"sm_mhz": float(torch.cuda.clock_rate(device))}
    except (ImportError, RuntimeError, AttributeError):  # no NVML for Python, or a driver that hides it
        return {}
