"""Lab 07, what the worker does: sums and rounds numbers, weighs the transformer, and tries broken loops."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.engine.worker import Worker
from labkit.worker.settings import prepare, release_memory, set_precision
from lessons.precision_memory.plan import Hidden, Levers, Memory, Numbers, Scaling, Timeline, Trial
from lessons.precision_memory.worker.levers import measure_lever
from lessons.precision_memory.worker.memory import measure_memory, measure_peak, record_step_allocations
from lessons.precision_memory.worker.numbers import run_experiment
from lessons.precision_memory.worker.scaling import train_scaled
from lessons.precision_memory.worker.trials import try_variant

__all__ = ["measure", "prepare"]

_WORK = {
    Numbers: run_experiment,
    Scaling: train_scaled,
    Memory: measure_memory,
    Timeline: record_step_allocations,
    Levers: measure_lever,
    Hidden: measure_peak,
    Trial: try_variant,
}


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point, and leave no memory to the next one."""
    set_precision(getattr(point, "precision", "float32"))
    _WORK[type(worker.plan)](worker, point)
    release_memory(worker)
