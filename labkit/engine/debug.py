"""One worker in the kernel's own process, for whoever wants a breakpoint; the only way that loads torch there."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.engine.errors import PlanError
from labkit.engine.run import Run
from labkit.engine.worker import Worker

SINGLE_RANK_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LABKIT_LAUNCH": "1"}


def measure_here(run: Run) -> Run:
    """Measure every point of a plan of one worker; an exception comes straight from the worker's line.

    Raises PlanError for a plan of several workers: a debugger can stop only one.
    """
    import torch.distributed as dist

    if run.plan.gpus != 1:
        raise PlanError(f"gpus={run.plan.gpus}: debug=True runs one process; make the plan with gpus=1")
    begun, state = time.monotonic(), "failed in the debugger"
    with _environment(SINGLE_RANK_ENVIRONMENT | {"LABKIT_LAUNCHED": repr(begun)}):
        try:
            lab, worker = importlib.import_module(run.plan.worker), Worker(run)
            worker.join(run.plan, dist.HashStore())
            if hasattr(lab, "prepare"):
                worker.state = lab.prepare(worker)
            worker.event("ready")
            worker.measure_points(lab, 0)
            state = "finished"
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            seconds = time.monotonic() - begun
            run.close(state, launches=1, seconds=seconds, startup_seconds=0.0, measuring_seconds=seconds, debug=True)
    return run


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
