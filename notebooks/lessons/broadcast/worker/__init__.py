"""Lab 02, what the workers do: rank 0 drives the lanes of all GPUs; every rank joins in where NCCL does."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.called_function import Prints, load_function
from labkit.engine.worker import Worker
from lessons.broadcast import bugs
from lessons.broadcast.plan import Trial
from lessons.broadcast.worker import methods
from lessons.broadcast.worker.lanes import Lanes
from lessons.broadcast.worker.trial import copy_rows, pattern, rehearse, timed_copies

_MOST_DRAWN = 16  # chunks; a timeline of more is a blur, and its spans would be most of the run


class _Buffers:
    """The host tensor, pageable and pinned, a copy a GPU, and on every GPU a reference that no copy method wrote."""

    def __init__(self, worker: Worker):
        on_gpu, elements = worker.device.type == "cuda", worker.plan.elements
        self.driver, self.elements, self.seed = worker.rank == 0, elements, None
        every = [torch.device("cuda", gpu) if on_gpu else worker.device for gpu in range(worker.gpus)]
        self.devices, self.on_gpu = every if self.driver else [worker.device], on_gpu

    def allocate(self) -> None:
        """Take the memory, once: by the first point, which is not tried where it does not fit."""
        self.copies = [torch.empty(self.elements, device=device) for device in self.devices]
        self.sources = {}
        if self.driver:
            pageable = torch.zeros(self.elements)  # zeros, not empty: its pages exist before the clock runs
            pinned = torch.empty(self.elements, pin_memory=True) if self.on_gpu else pageable
            self.sources = {"pageable": pageable, "pinned": pinned}

    def fill(self, seed: int) -> None:
        """Put the seed's values into the sources and the references."""
        if self.seed is None:
            self.allocate()
        if seed != self.seed:
            self.references = []  # before the next ones are made: two pairs may not fit
            made = {device: pattern(self.elements, seed, device) for device in dict.fromkeys(self.devices)}
            self.references = [made[device] for device in self.devices]
            self.seed = seed
            self.restore()

    def restore(self) -> None:
        """Put the seed's values into the sources again."""
        for source in self.sources.values():
            source.copy_(self.references[0])

    def poison(self) -> None:
        """Fill every copy with NaN, so that a value left over from an earlier repeat cannot pass."""
        for copy in self.copies:
            copy.fill_(float("nan"))

    def wrong(self, part_of: Callable[[int], slice] = lambda gpu: slice(None)) -> list[int]:
        """Return the GPUs whose copy differs from the reference, in the part that each should hold."""
        pairs = enumerate(zip(self.copies, self.references, strict=True))
        return [gpu for gpu, (copy, right) in pairs if not torch.equal(copy[part_of(gpu)], right[part_of(gpu)])]


def prepare(worker: Worker) -> _Buffers:
    """Return the buffers; on a CPU each copy is one thread's work, so that lanes can overlap on few cores."""
    if worker.device.type == "cpu":
        torch.set_num_threads(1)
    elif worker.rank == 0:
        worker.drives = range(worker.gpus)
    return _Buffers(worker)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point; ranks with nothing to do wait at the barrier without using their GPU."""
    worker.state.fill(point.seed)
    if isinstance(worker.plan, Trial):
        if worker.rank == 0:
            _try_function(worker, point)
    elif point.method == "nccl":
        _through_nccl(worker, point)
    elif worker.rank == 0:
        _through_lanes(worker, point)
    worker.barrier()


def _through_lanes(worker: Worker, point: SimpleNamespace) -> None:
    """Time one method of methods.py and compare every copy after every repeat; then draw it once, copy by copy."""
    buffers, work = worker.state, getattr(methods, point.method)
    source = buffers.sources[point.memory]
    lanes = Lanes(buffers.devices)

    def broadcast() -> None:
        work(source, buffers.copies, point.chunks, lanes)
        lanes.wait()

    share = lanes.parts(buffers.elements, worker.gpus)
    part_of = share.__getitem__ if point.method == "links" else lambda gpu: slice(None)
    for timing in worker.time(broadcast, before=buffers.poison):
        _record(worker, timing, buffers.wrong(part_of))
    lanes.close()
    best_memory = worker.plan.memories[-1]
    if point.seed == worker.plan.seeds[0] and point.memory == best_memory and point.chunks <= _MOST_DRAWN:
        for copy in timed_copies(work, source, buffers.copies, point.chunks, Lanes(buffers.devices, timed=True)):
            worker.span("copy", copy.lane, copy.start_us, copy.end_us)


def _through_nccl(worker: Worker, point: SimpleNamespace) -> None:
    """One copy from the host to GPU 0, then the library's broadcast (NCCL; gloo between processes without GPUs)."""
    buffers = worker.state

    def broadcast() -> None:
        if worker.rank == 0:
            buffers.copies[0].copy_(buffers.sources[point.memory], non_blocking=True)
        dist.broadcast(buffers.copies[0], src=0)

    def before() -> None:
        buffers.poison()
        worker.synchronize()
        worker.barrier()

    for timing in worker.time(broadcast, before=before):
        right = torch.equal(buffers.copies[0], buffers.references[0])  # rank 0's other copies take no part
        _record(worker, timing, [] if right else [worker.rank])


def _record(worker: Worker, timing, wrong: list[int], **more) -> None:
    """Append the row of one repeat; a copy that differs makes it a failed one."""
    status = f"wrong copy on GPU {', '.join(map(str, wrong))}" if wrong else "ok"
    rate = 4 * worker.plan.elements / timing.seconds / 1e9
    worker.record(
        iteration=timing.iteration, warm_up=timing.warm_up, status=status, seconds=timing.seconds, gb_per_s=rate, **more
    )


def _try_function(worker: Worker, point: SimpleNamespace) -> None:
    """Time a function like a method, note what it claims and does to the source, and log every copy it asked for."""
    buffers, work = worker.state, _find(point.function, worker.plan.answers)
    source = buffers.sources[point.memory]
    before = source.clone()
    with redirect_stdout(prints := Prints()):
        rehearsed = rehearse(work, source, before, buffers, point.chunks)
    buffers.restore()
    lanes = Lanes(buffers.devices)

    def broadcast():
        with redirect_stdout(io.StringIO()):
            claimed = work(source, buffers.copies, point.chunks, lanes)
        in_flight = lanes.in_flight()
        lanes.wait()
        return claimed, in_flight

    for timing in worker.time(broadcast, before=buffers.poison):
        claimed, in_flight = timing.result
        changed = not torch.equal(source, before)  # outside the clock: the host reads the whole tensor
        own_clock = {"claimed_seconds": claimed} if isinstance(claimed, float) else {}
        seen = {"source_changed": changed, "in_flight": in_flight} | rehearsed | own_clock | prints.column()
        _record(worker, timing, buffers.wrong(), **seen)
        buffers.restore()
    lanes.close()
    with redirect_stdout(io.StringIO()):
        log = timed_copies(work, source, buffers.copies, point.chunks, Lanes(buffers.devices, timed=True))
    buffers.restore()
    for copy in copy_rows(log, source, buffers.copies):
        worker.span("copy", copy.pop("lane"), copy.pop("start_us"), copy.pop("end_us"), **copy)


def _find(name: str, answers: str) -> Callable:
    """Return the function that "methods.direct", "bugs.early_forward" or "answers.pipelined" names.

    An answer is loaded from its own file, so that a traceback names the student's file and line.
    """
    home, _, function = name.partition(".")
    if home != "answers":
        return getattr({"methods": methods, "bugs": bugs}[home], function)
    return load_function(Path(answers) / f"broadcast_{function}.py", function)
