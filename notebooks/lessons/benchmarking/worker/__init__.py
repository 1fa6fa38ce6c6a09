"""Lab 06, what the worker does: times, profiles and takes apart the steps of one model on one GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.worker.settings import prepare as prepare
from labkit.worker.settings import release_memory, set_precision
from lessons.benchmarking.plan import Answer, Clocks, Launches, Products, Profiles, Trial
from lessons.benchmarking.worker.device import drive
from lessons.benchmarking.worker.launches import count_kernels, time_launches
from lessons.benchmarking.worker.profiles import plain_phases, profile_phases
from lessons.benchmarking.worker.steps import TrainingLoop, compare_clocks, time_phases, time_products
from lessons.benchmarking.worker.trials import try_variant


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point."""
    if isinstance(worker.plan, Products):
        time_products(worker, point)
        release_memory(worker)
        return
    if worker.rank:
        return
    if isinstance(worker.plan, Answer):
        try_answer(worker, point)
    elif isinstance(worker.plan, Trial):
        try_variant(worker, point)
    else:
        run_point(worker, point)
        release_memory(worker)


def run_point(worker: Worker, point: SimpleNamespace) -> None:
    """Build the point's model, and do with it what the plan says."""
    set_precision(point.precision)
    if isinstance(worker.plan, Launches):
        loop = TrainingLoop(worker, point, (point.hidden, point.inner, point.layers, point.heads))
        if point.profiled:
            count_kernels(worker, loop)
        else:
            time_launches(worker, point, loop)
        return
    loop = TrainingLoop(worker, point, worker.plan.dimensions(point.model), point.mode)
    if isinstance(worker.plan, Clocks):
        compare_clocks(worker, loop)
    elif not isinstance(worker.plan, Profiles):
        time_phases(worker, loop)
    elif point.profiled:
        profile_phases(worker, point, loop)
    else:
        plain_phases(worker, loop)


def try_answer(worker: Worker, point: SimpleNamespace) -> None:
    """Append what the student's `timed` returned for one kind of step, and its calls of the simulated device."""
    if not callable(worker.state):
        worker.state = load_function(Path(worker.plan.answers) / "benchmarking_timed.py", "timed")
    worker.record(iteration=0, **drive(worker.state, point.situation))
