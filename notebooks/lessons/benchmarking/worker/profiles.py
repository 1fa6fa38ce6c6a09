"""Each phase under torch's profiler: what the GPU ran, which operator launched it, how long the host's clock ran."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from labkit.engine.worker import Worker
from labkit.theory.intervals import length
from labkit.theory.kernels import family, short_name
from labkit.worker.trace import MOST_KERNELS, TIMED_STEPS, device_events, event_intervals_us, host_events
from lessons.benchmarking.plan import PHASES
from lessons.benchmarking.theory import attention_work
from lessons.benchmarking.worker.steps import TrainingLoop

_PART_CALLS = 10
# Attention on a CPU, which torch's own counter does not know: two products forward, five backward.
_CPU_ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": 2,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 5,
}
_NO_WORK = ("empty", "detach", "lift", "_local_scalar", "_unsafe_view")  # names that begin so neither read nor write


@dataclass
class ProfiledSteps:
    """What the profiler saw: what the device ran (on a CPU: outermost operators), all host events, and two clocks.

    `events` carry times in µs since the profile's start; `clock_s` is what the host's clock said of the same steps.
    """

    events: list[Any]
    host: list[Any]
    clock_s: float

    @property
    def window_us(self) -> float:
        """From the start of the first to the end of the last."""
        starts, ends = zip(*event_intervals_us(self.events), strict=True)
        return max(ends) - min(starts)

    @property
    def busy_us(self) -> float:
        """How long at least one of them ran."""
        return length(event_intervals_us(self.events))


def profile_work(worker: Worker, work: Callable[[], Any], steps: int, *, with_host: bool = False) -> ProfiledSteps:
    """Run `work` once unread, which bears the profiler's start, then `steps` times under the profiler.

    The host is watched only `with_host`, or where there is no GPU: watching slows it.
    """
    on_gpu = worker.device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    if on_gpu and with_host:
        activities.append(ProfilerActivity.CPU)
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1)) as prof:
        work()
        worker.synchronize()
        prof.step()
        with record_function(TIMED_STEPS):
            worker.synchronize()
            begun = time.perf_counter()
            for _ in range(steps):
                work()
            worker.synchronize()
            clock_s = time.perf_counter() - begun
    recorded = list(prof.events() or [])
    begin = min((event.time_range.start for event in recorded if event.name == TIMED_STEPS), default=0.0)
    events = device_events(recorded) if on_gpu else host_events(recorded)
    return ProfiledSteps([event for event in events if event.time_range.start >= begin], recorded, clock_s)


def plain_phases(worker: Worker, loop: TrainingLoop) -> None:
    """Append what each phase takes while no profiler has been in the process. Rows: entry="plain" (phase, plain_ms)."""
    for phase in PHASES:
        timings = worker.time(loop.works[phase])
        plain_ms = 1e3 * statistics.median(run.seconds for run in timings if not run.warm_up)
        worker.record(entry="plain", phase=phase, plain_ms=plain_ms)


def profile_phases(worker: Worker, point: SimpleNamespace, loop: TrainingLoop) -> None:
    """Append accounts, kernels and operators of every phase, attention's parts, and spans of a forward to draw.

    Rows: entry="account" (phase, clock_ms, window_ms, busy_ms, kernels: a step), entry="kernel" (phase,
    kernel, family, calls, total_us), of forward and step entry="operator" (phase, operator, calls, total_us, flop,
    moved_bytes),
    entry="attention" (part, us, flop, moved_bytes), and spans "operator", "launch", "kernel".
    """
    for phase in PHASES:
        work = loop.works[phase]
        _record_account(worker, phase, work)
        if phase != "both":
            profiled = profile_work(worker, work, 1, with_host=True)
            _record_operators(worker, phase, work, profiled)
            if phase == "forward" and f"{point.model} {point.precision}" in worker.plan.drawn:
                _record_spans(worker, profiled)
    loop.optimizer.zero_grad()
    _attention(worker, point)


def _record_account(worker: Worker, phase: str, work: Callable) -> None:
    steps = worker.plan.steps if phase == "forward" else 1
    steps_seen = profile_work(worker, work, steps)
    worker.record(
        entry="account",
        phase=phase,
        clock_ms=1e3 * steps_seen.clock_s / steps,
        window_ms=steps_seen.window_us / 1e3 / steps,
        busy_ms=steps_seen.busy_us / 1e3 / steps,
        kernels=len(steps_seen.events) / steps,
    )
    times_us: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in steps_seen.events:
        times_us[short_name(event.name), family(event.name)].append(event.time_range.elapsed_us())
    ordered = sorted(times_us.items(), key=lambda item: -sum(item[1]))
    for (name, kind), calls in ordered[:MOST_KERNELS]:
        _record_kernel(worker, phase, name, kind, calls, steps)
    rest: dict[str, list[float]] = defaultdict(list)
    for (_, kind), calls in ordered[MOST_KERNELS:]:
        rest[kind] += calls
    for kind, calls in rest.items():
        _record_kernel(worker, phase, "others", kind, calls, steps)


def _record_kernel(worker: Worker, phase: str, name: str, kind: str, calls: list[float], steps: int) -> None:
    counts = {"calls": len(calls) / steps, "total_us": sum(calls) / steps}
    worker.record(entry="kernel", phase=phase, kernel=name, family=kind, **counts)


def _record_operators(worker: Worker, phase: str, work: Callable, profiled: ProfiledSteps) -> None:
    """Append a row per operator that launched something: its time on the device, and what it had to do."""
    with Traffic() as traffic:
        work()
    device_us: dict[str, float] = defaultdict(float)
    begin = _begin_us(profiled)
    for event in profiled.host:
        if event.time_range.start < begin:
            continue
        outermost = _outermost_counted(event, traffic)
        if worker.device.type == "cuda":
            us = sum(kernel.duration for kernel in event.kernels)
        else:  # what is inside a counted operator is part of it
            us = event.time_range.elapsed_us() if outermost is event else 0.0
        if us:
            device_us[(outermost or event).name] += us
    for operator, total_us in sorted(device_us.items(), key=lambda item: -item[1]):
        counts = traffic.counts.get(operator)
        counted = {"calls": counts.calls, "flop": counts.flop, "moved_bytes": counts.moved_bytes} if counts else {}
        worker.record(entry="operator", phase=phase, operator=operator, total_us=total_us, **counted)


def _begin_us(profiled: ProfiledSteps) -> float:
    """Return when the steps that count began; what the host did before was the unread call."""
    return min((event.time_range.start for event in profiled.host if event.name == TIMED_STEPS), default=0.0)


def _outermost_counted(event: Any, traffic: Traffic) -> Any:
    """Return the outermost operator, the event itself or one around it, that the dispatcher counted; None without."""
    outermost, outer = None, event
    while outer is not None:
        if outer.name in traffic.counts:
            outermost = outer
        outer = outer.cpu_parent
    return outermost


def _record_spans(worker: Worker, profiled: ProfiledSteps) -> None:
    """Append a span per operator, launch and kernel of the profiled forward; time counts from its first event."""
    shown = [("kernel", event) for event in profiled.events] if worker.device.type == "cuda" else []
    begin = _begin_us(profiled)
    for event in profiled.host:
        outer = event.cpu_parent
        if event.time_range.start < begin or event.name == TIMED_STEPS:
            continue
        if "Launch" in event.name:
            shown.append(("launch", event))
        elif event.name.startswith("aten::") and not (outer and outer.name.startswith("aten::")):
            shown.append(("operator", event))
    zero_us = min(event.time_range.start for _, event in shown)
    for what, event in sorted(shown, key=lambda item: item[1].time_range.start):
        lane = "GPU" if what == "kernel" else "host"
        ends = (event.time_range.start - zero_us, event.time_range.end - zero_us)
        worker.span(what, lane, *ends, what=short_name(event.name), family=family(event.name))


def _attention(worker: Worker, point: SimpleNamespace) -> None:
    """Append what each part of plain attention takes, with its FLOP and bytes."""
    plan, device = worker.plan, worker.device
    hidden, _, _, heads = plan.dimensions(point.model)
    dtype = torch.bfloat16 if point.precision == "autocast" else torch.float32
    shape = (plan.samples, heads, plan.sequence, hidden // heads)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
    scores = q @ k.transpose(-2, -1)
    weights = scores.softmax(-1)
    works = {
        "scores": lambda: q @ k.transpose(-2, -1),
        "softmax": lambda: scores.softmax(-1),
        "values": lambda: weights @ v,
    }
    due = attention_work(plan.samples, heads, plan.sequence, hidden // heads, q.element_size())
    for part, work in works.items():
        profiled = profile_work(worker, work, _PART_CALLS)
        us = sum(event.time_range.elapsed_us() for event in profiled.events) / _PART_CALLS
        worker.record(entry="attention", part=part, us=us, **due[part])


@dataclass
class Counts:
    """Calls of one operator, with their FLOP and the bytes that they read and write at least."""

    calls: int = 0
    flop: float = 0.0
    moved_bytes: float = 0.0


class Traffic(TorchDispatchMode):
    """Adds up, by operator ("aten::mm"), calls, FLOP and bytes of what runs while it is on, backward included.

    Bytes: every tensor that goes in is read once, and every one that is made or changed is written once. FLOP: torch's
    own count for matrix products and attention; of all other operators, one for every element that they read (or
    write, where they read none): a convention, by which a copy is an operation, too.
    """

    def __init__(self):
        super().__init__()
        self.counts: dict[str, Counts] = defaultdict(Counts)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = str(function.overloadpacket.__name__)
        if function.is_view or name.startswith(_NO_WORK):
            return result
        read, written = _tensors((args, kwargs)), _tensors(result)
        changed = _written_tensors(function, args)
        read_ids = {id(tensor) for tensor in read}
        made = [tensor for tensor in written if id(tensor) not in read_ids]
        counts = self.counts[f"{function.namespace}::{name}"]
        counts.calls += 1
        counts.moved_bytes += sum(map(_bytes, [*read, *made, *changed]))
        counts.flop += _flop(function, name, args, kwargs, result, read, made)
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    """Return every tensor in nested arguments or results, each once."""
    tensors = (value for value in tree_leaves(values) if isinstance(value, torch.Tensor))
    return list({id(tensor): tensor for tensor in tensors}.values())


def _written_tensors(function: Any, args: tuple) -> list[torch.Tensor]:
    """Return the arguments that the operator writes to, by its schema."""
    pairs = zip(function._schema.arguments, args, strict=False)
    return _tensors([value for argument, value in pairs if argument.alias_info and argument.alias_info.is_write])


def _bytes(tensor: torch.Tensor) -> int:
    """Return a tensor's bytes; of an expanded one, those that are there."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _flop(function: Any, name: str, args: tuple, kwargs: dict, result: Any, read: list, made: list) -> float:
    counter = flop_registry.get(function.overloadpacket)
    if counter is not None:
        return counter(*args, **kwargs, out_val=result)
    if name in _CPU_ATTENTION:
        head = next(tensor for tensor in read if tensor.dim() == 4)  # (batch, heads, sequence, width)
        return _CPU_ATTENTION[name] * 2 * head.numel() * head.shape[-2]
    return _elements(read) or _elements(made)
