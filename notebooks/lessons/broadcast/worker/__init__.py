"""Lab 02, what the workers do: rank 0 drives the lanes of all GPUs; every rank joins in where NCCL does."""

from __future__ import annotations

import io
import itertools
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
from lessons.broadcast.worker.trial import Buffers, row_of, timed_copies, tried

_MOST_DRAWN = 16  # chunks; a timeline of more is a blur, and its spans would be most of the run


def prepare(worker: Worker) -> Buffers:
    """Return the buffers; on a CPU each copy is one thread's work, so that lanes can overlap on few cores."""
    devices = [worker.device]
    if worker.device.type == "cpu":
        torch.set_num_threads(1)
        devices *= worker.gpus if worker.rank == 0 else 1
    elif worker.rank == 0:
        worker.drives = range(worker.gpus)
        devices = [torch.device("cuda", gpu) for gpu in worker.drives]
    return Buffers(worker.plan.elements, devices, has_source=worker.rank == 0)


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
        worker.record(**row_of(timing, buffers.wrong(part_of)))
    lanes.close()
    best_memory = worker.plan.memories[-1]
    if point.seed == worker.plan.seeds[0] and point.memory == best_memory and point.chunks <= _MOST_DRAWN:
        for copy in timed_copies(work, source, buffers, point.chunks):
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
        worker.record(**row_of(timing, [] if right else [worker.rank]))


def _try_function(worker: Worker, point: SimpleNamespace) -> None:
    """Append what `tried` tells of a function, and what it printed in its first call."""
    work, prints = _find(point.function, worker.plan.answers), Prints()
    outlets = itertools.chain([prints], iter(io.StringIO, None))

    def printing(*given) -> object:
        with redirect_stdout(next(outlets)):
            return work(*given)

    rows, spans = tried(printing, worker.state, point.memory, point.chunks, worker.time)
    for row in rows:
        worker.record(**row, **prints.column())
    for copy in spans:
        worker.span("copy", copy.pop("lane"), copy.pop("start_us"), copy.pop("end_us"), **copy)


def _find(name: str, answers: str) -> Callable:
    """Return the function that "methods.direct", "bugs.early_forward" or "answers.pipelined" names.

    An answer is loaded from its own file, so that a traceback names the student's file and line.
    """
    home, _, function = name.partition(".")
    if home != "answers":
        return getattr({"methods": methods, "bugs": bugs}[home], function)
    return load_function(Path(answers) / f"broadcast_{function}.py", function)
