"""Lab 03, what the workers do: run the pipeline in the point's mode, time it, and once more on the record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker import settings
from labkit.worker.clocks import Clock, fence
from labkit.worker.settings import release_memory, set_precision
from lessons.pipeline.plan import YOURS, Trial
from lessons.pipeline.theory.schedules import layers_of
from lessons.pipeline.worker.pipe import HandPipe, Pipe
from lessons.pipeline.worker.trials import try_variant

_TRACED = 2  # steps on the record; of a stream the last of a few, when the pipeline is full
_MOST_TRACED = {
    "streaming": 16,
    "fenced": 16,
    "kept": 16,
    "training": 64,
}  # spans a rank and step; more would be a blur


def prepare(worker: Worker) -> dict[int, tuple[Any, ...]]:
    """Make two process groups for each number of ranks that the plan uses: the loop by hand has one for each way."""
    return {n: (group, dist.new_group([*range(n)])) for n, group in settings.prepare(worker).items()}


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point; ranks that the point leaves out go on, and wait where all points end."""
    set_precision(point.precision)
    if worker.rank < point.ranks:
        (try_variant if isinstance(worker.plan, Trial) else _run_point)(worker, point, worker.state[point.ranks])
    release_memory(worker)


def _run_point(worker: Worker, point: SimpleNamespace, groups: tuple[dist.ProcessGroup | None, ...]) -> None:
    """Build the pipeline, time its steps, note the memory, then put two steps on the record (first seed only)."""
    pipe, group = (HandPipe if point.schedule == YOURS else Pipe)(worker, point, groups), groups[0]
    if worker.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    _stream(worker, pipe, group) if point.mode == "streaming" else _steps(worker, pipe, group)
    spans = len(pipe.modules) * point.micro_batches * (2 if pipe.training else 1)
    if point.seed == worker.plan.seeds[0] and spans <= _MOST_TRACED[point.mode]:
        _trace(worker, pipe, group, _TRACED if pipe.training else 2 * _TRACED)


def _steps(worker: Worker, pipe: Pipe, group: dist.ProcessGroup | None) -> None:
    """Time single steps, all ranks starting together; a step lasts as long as its slowest rank."""
    for timing in worker.time(pipe.step, before=lambda: fence(group)):
        loss = {"loss": torch.stack(timing.result).mean()} if timing.result else {}
        _record(worker, timing.iteration, timing.warm_up, timing.seconds, **loss)


def _stream(worker: Worker, pipe: Pipe, group: dist.ProcessGroup | None) -> None:
    """Run step after step without a barrier; a step lasts from the end of the one before to its own, on each rank."""
    count = worker.plan.warm_ups + worker.plan.stream
    fence(group)
    zero = Clock(worker.device)
    ends = [pipe.tape.now()]
    for _ in range(count):
        pipe.step()
        ends.append(pipe.tape.now())
    worker.synchronize()
    ends = [zero.seconds(end) for end in ends]
    for iteration in range(count):
        _record(worker, iteration, iteration < worker.plan.warm_ups, ends[iteration + 1] - ends[iteration])


def _record(worker: Worker, iteration: int, warm_up: bool, seconds: float, **more) -> None:
    """Append a step's row: its time, and the most memory that this rank's tensors took so far in the point."""
    if worker.device.type == "cuda":
        more["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
    layers = sum(layers_of(worker.point.split)[worker.rank :: worker.point.ranks])
    worker.record(iteration=iteration, warm_up=warm_up, step_ms=1e3 * seconds, rank_layers=layers, **more)


def _trace(worker: Worker, pipe: Pipe, group: dist.ProcessGroup | None, count: int) -> None:
    """Run `count` more steps (fenced, but for a stream) and append every span of every rank, on one clock."""
    streaming = worker.point.mode == "streaming"
    begun = fence(group)
    pipe.step()  # the first step with events is not kept
    pipe.tape.marks.clear()
    for number in range(1 if streaming else count):
        worker.synchronize()
        zero = Clock(worker.device)
        begun = fence(group)
        pipe.tape.on = True
        for _ in range(count if streaming else 1):
            pipe.step()
        pipe.tape.on = False
        worker.synchronize()
        zero.look_again()
        for kind, stage, micro_batch, start, end in pipe.tape.seconds(zero):
            worker.span(
                kind,
                f"rank {worker.rank}",
                1e6 * (start - begun),
                1e6 * (end - begun),
                stage=stage,
                micro_batch=micro_batch,
                step=number,
                skew_us=round(zero.skew_us, 1),
            )
