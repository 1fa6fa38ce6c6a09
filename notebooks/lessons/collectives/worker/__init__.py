"""Lab 09, what the workers do: make collective calls, time them, verify each, and set others beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.worker.settings import prepare as prepare
from lessons.collectives.plan import NcclTests, Ring, Trial
from lessons.collectives.worker import nccl_tests
from lessons.collectives.worker.calls import CALLS, Call
from lessons.collectives.worker.timing import RingAllReduce, gloo_barrier, timing_fields
from lessons.collectives.worker.trials import try_variant


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point on the ranks that it uses; the others wait where all points end."""
    group = worker.state[point.ranks]
    if worker.rank >= point.ranks:
        return
    if isinstance(worker.plan, Trial):
        try_variant(worker, point, group)
    elif getattr(point, "source", "ours") == "nccl-tests":
        _ask_nccl_tests(worker, point, group)
    else:
        _time_call(worker, point, group)
    if worker.device.type == "cuda":
        worker.synchronize()
        torch.cuda.empty_cache()


def _time_call(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Time the point's call, and have rank 0 append one row for all ranks."""
    host = point.backend == "gloo"  # the group moves host tensors with gloo, on a node of GPUs as elsewhere
    device = torch.device("cpu") if host else worker.device
    elements = getattr(point, "elements", point.bytes // 4)
    call = _kind(worker, point)(worker.rank, point.ranks, elements, device, group)
    row = timing_fields(worker, point, call, group)
    if worker.rank == 0:
        worker.record(**row, placement=call.placement, sent_bytes=getattr(call, "sent_bytes", None))


def _kind(worker: Worker, point: SimpleNamespace) -> type[Call]:
    """Return the class of the point's call."""
    method = point.method if isinstance(worker.plan, Ring) else "library"
    if method == "yours":
        return type("Yours", (RingAllReduce,), {"ring_step": staticmethod(_answer(worker.plan.yours))})
    return RingAllReduce if method == "ours" else CALLS[point.collective]


@cache
def _answer(file: str) -> Callable:
    return load_function(Path(file), "ring_step")


def _ask_nccl_tests(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Have rank 0 run nccl-tests' program, the GPUs' memory being free, and append a row a size and placement.

    One row says "not installed", or "failed" and why, where there is nothing to read.
    """
    gloo_barrier(group)
    if worker.rank:
        return
    plan: NcclTests = worker.plan
    path = nccl_tests.program(point.collective)
    if path is None:
        worker.record(status="not installed", said=f"no {nccl_tests.PROGRAMS[point.collective]} was found")
        return
    sizes = [1024 * kib for kib in plan.sizes_kib]
    try:
        text = nccl_tests.run(path, point.ranks, sizes[0], sizes[-1], plan.step, point.in_flight)
        lines = nccl_tests.parse(text, sizes)
    except ValueError as error:
        worker.record(status="failed", said=str(error))
        return
    for size, line in zip(sizes, lines, strict=True):
        for placement_row in line:
            row = placement_row._asdict() | {"bytes": size, "status": "wrong result" if placement_row.wrong else "ok"}
            worker.record(**row, version=nccl_tests.version(text))
