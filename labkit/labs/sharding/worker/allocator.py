"""The memory of a few training steps, as the caching allocator's own history tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from labkit.labs.sharding.theory.allocations import MIB, fragments, timeline

MOST_EVENTS = 1_000_000  # allocations, releases and reservations that the history holds; the oldest go first


def remembered(worker: Any, phases: list[tuple[str, Callable[[], Any]]], iterations: int = 3) -> None:
    """Run the phases in order, `iterations` times, and append which memory was in use when; on a CPU, do nothing.

    `phases` are (name, work), the names "forward", "backward" and "optimizer"; what `work` gives back is dropped, so a
    loss must be kept by its caller. The device is synchronised between phases.
    Rows: entry="memory timeline" (t_ms, base_mib, activations_mib, gradients_mib, optimizer_mib, temporary_mib,
    allocated_mib, reserved_mib, phase) and entry="segment" (segment_mib, allocated_mib, largest_free_mib, segments)
    at the end of the last backward, when the cache is most in pieces.
    """
    if worker.device.type != "cuda":
        return
    memory, marks, segments = torch.cuda.memory, [], []
    worker.synchronize()
    before = torch.cuda.memory_stats()
    memory._record_memory_history("all", context=None, max_entries=MOST_EVENTS)
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
