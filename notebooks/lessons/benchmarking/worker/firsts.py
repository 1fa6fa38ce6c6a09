"""The first iterations of a fresh process, event by event: what only the first ones do."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.engine.worker import Worker
from labkit.worker.clocks import clock_mhz
from lessons.benchmarking.theory import innermost, kind
from lessons.benchmarking.worker.steps import TrainingLoop

LISTED = 40  # events with a row of their own, an iteration; the rest of each kind is one row
_RANGE = "iteration {}"


def watch_first_calls(worker: Worker, loop: TrainingLoop) -> None:
    """Profile the first AdamW steps of this process, one range each, and append what the host and the GPU did.

    Rows: entry="iteration" (ms, device_allocations, sm_mhz) and entry="event" (event, kind, calls, longest_us
    of one call, self_us: the time in which nothing began after it and still went on).
    """
    on_gpu = worker.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    seen = []
    worker.synchronize()
    with profile(activities=activities) as prof:
        for iteration in range(worker.plan.iterations):
            before = _allocations(on_gpu)
            with record_function(_RANGE.format(iteration)), worker.clock() as timing:
                loop.step()
            made = {"device_allocations": _allocations(on_gpu) - before} if on_gpu else {}
            seen.append((iteration, timing, made | clock_mhz(worker.device)))
    events = list(prof.events() or [])
    for iteration, timing, more in seen:
        _append(worker, events, iteration, timing, more)


def _allocations(on_gpu: bool) -> int:
    """Return how often torch's allocator has asked the driver for memory so far."""
    return int(torch.cuda.memory_stats().get("num_device_alloc", 0)) if on_gpu else 0


def _append(worker: Worker, events: list, iteration: int, timing: SimpleNamespace, more: dict[str, Any]) -> None:
    window = next(event.time_range for event in events if event.name == _RANGE.format(iteration) and _on_host(event))
    inside = [event for event in events if window.start <= event.time_range.start <= window.end]
    host = [event for event in inside if _on_host(event)]
    shared = {"iteration": iteration, "warm_up": False}
    worker.record(entry="iteration", **shared, ms=1e3 * timing.seconds, **more)
    took = innermost((e.time_range.start, min(e.time_range.end, window.end), _name(e.name)) for e in host)
    lasted: dict[str, list[float]] = defaultdict(list)
    for event in host:
        lasted[_name(event.name)].append(event.time_range.elapsed_us())
    ordered = sorted(took.items(), key=lambda item: -item[1])
    for event, self_us in ordered[:LISTED]:
        what = {"event": event, "kind": kind(event), "calls": len(lasted[event]), "longest_us": max(lasted[event])}
        worker.record(entry="event", **shared, **what, self_us=self_us)
    rest: dict[str, float] = {}
    for event, self_us in ordered[LISTED:]:
        rest[kind(event)] = rest.get(kind(event), 0.0) + self_us
    for what, self_us in rest.items():
        worker.record(entry="event", **shared, event="other", kind=what, calls=0, self_us=self_us)


def _on_host(event: Any) -> bool:
    return event.device_type == DeviceType.CPU


def _name(name: str) -> str:
    """Return an event's name, the same in every iteration."""
    return "iteration" if name.startswith("iteration ") else name.partition("#")[0][:80]
