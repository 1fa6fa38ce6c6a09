"""What a step's time goes into, by torch's profiler: computing, communicating, idling; kernel by kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from labkit.engine.worker import Worker
from labkit.theory.intervals import accounted, drawn
from labkit.theory.kernels import collective, family, short_name

MOST_KERNELS = 25  # kernels with a row of their own, most time first; the rest is one row
GAP_US, MOST_SPANS = 20.0, 400  # in the drawing
TIMED_STEPS = "the steps that count"


def profile_step(worker: Worker, step: Callable[[], Any]) -> None:
    """Profile one call of `step`; append the account, the kernels and spans to draw.

    On a GPU: kernels, copies and fills. NCCL's kernels are communication, and with them the time in which they wait for
    the other ranks; all others are compute. The window goes from the first one's start to the last one's end.
    On a CPU: communication is what gloo's threads do, again with their waiting for other ranks (it reports a
    reduce-scatter as the all_reduce that it is); compute is PyTorch's operators on other threads. The two share the
    cores, so that what is hidden may still cost time.

    Rows: entry="profile" (window_ms, compute_ms, communication_ms, hidden_ms, exposed_ms, idle_ms, kernels,
    communication_kernels), entry="operator" (operator, family, calls, total_us) and spans "compute", "copy" and
    "communicate" (with their collective) on the host's clock, which all ranks of a node share.
    All ranks must call this. A first call of `step` goes unread: it bears the profiler's start.
    """
    on_gpu = worker.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU  # to watch the host, too, would slow it
    with profile(activities=[activity], schedule=schedule(wait=0, warmup=1, active=1)) as prof:
        step()
        worker.synchronize()
        prof.step()
        worker.barrier()  # profilers do not start at the same time
        with record_function(TIMED_STEPS):
            step()
            worker.synchronize()
    profiler: Any = prof.profiler
    profiler_events, zero_us = list(prof.events() or []), profiler.kineto_results.trace_start_ns() / 1e3
    begin = min((event.time_range.start for event in profiler_events if event.name == TIMED_STEPS), default=0.0)
    events = device_events(profiler_events) if on_gpu else host_events(profiler_events)
    events = [event for event in events if event.time_range.start >= begin]
    record_account(worker, events)
    record_operators(worker, events)
    record_spans(worker, events, zero_us)


def device_events(events: list) -> list:
    """Return kernels, copies and fills; ranges that the host has named are no work of the device."""
    return [event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation]


def host_events(events: list) -> list:
    """Return gloo's collectives, and the outermost operators on the threads that are not gloo's."""
    gloo = [event for event in events if event.name.startswith("gloo:")]
    threads = {event.thread for event in gloo}
    work = [event for event in events if event.name.startswith("aten::") and event.thread not in threads]
    return gloo + [event for event in work if not (event.cpu_parent and event.cpu_parent.name.startswith("aten::"))]


def lane_of(event: Any) -> str:
    """Return what the event is: "communicate", "copy" or "compute"."""
    if "nccl" in event.name or event.name.startswith("gloo:"):
        return "communicate"
    return "copy" if event.name.startswith(("Memcpy", "Memset")) else "compute"


def event_intervals_us(events: list) -> list[tuple[float, float]]:
    """Return start and end of each event in µs since the profile's start."""
    return [(event.time_range.start, event.time_range.end) for event in events]


def record_account(worker: Worker, events: list) -> None:
    """Append the row entry="profile": ms and kernels."""
    moved = [event for event in events if lane_of(event) == "communicate"]
    worked = [event for event in events if lane_of(event) != "communicate"]
    starts, ends = zip(*event_intervals_us(events), strict=True)
    took = accounted(event_intervals_us(worked), event_intervals_us(moved), min(starts), max(ends))
    parts = {f"{part}_ms": us / 1e3 for part, us in vars(took).items()}
    counts = {"kernels": len(events), "communication_kernels": len(moved)}
    window_ms = (max(ends) - min(starts)) / 1e3
    worker.record(entry="profile", window_ms=window_ms, **parts, **counts)


def record_operators(worker: Worker, events: list) -> None:
    """Append a row entry="operator" for each of the longest kernels, then one named "other" for all the rest."""
    times_us: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        times_us[short_name(event.name), family(event.name)].append(event.time_range.elapsed_us())
    ordered = sorted(times_us.items(), key=lambda item: -sum(item[1]))
    rows, rest = ordered[:MOST_KERNELS], ordered[MOST_KERNELS:]
    if rest:
        rows.append((("other", "other"), [us for _, calls in rest for us in calls]))
    for (name, kind), calls in rows:
        worker.record(entry="operator", operator=name, family=kind, calls=len(calls), total_us=sum(calls))


def record_spans(worker: Worker, events: list, zero_us: float) -> None:
    """Append what a drawing needs: the events by lane and collective, small gaps closed."""
    groups: dict[tuple[str, str], list] = defaultdict(list)
    for event in events:
        what = lane_of(event)
        groups[what, collective(event.name) if what == "communicate" else ""].append(event)
    for (what, name), members in groups.items():
        share = MOST_SPANS // sum(other == what for other, _ in groups)
        for start, end in drawn(event_intervals_us(members), GAP_US, share):
            worker.span(what, f"rank {worker.rank}", zero_us + start, zero_us + end, collective=name)
