"""Lab 07, what the worker does: sums and rounds numbers, weighs the transformer, and tries broken loops."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.engine.worker import Worker
from labkit.worker.settings import forget, prepare, set_precision
from lessons.precision_memory.plan import Hidden, Levers, Memory, Numbers, Scaling, Timeline, Trial
from lessons.precision_memory.worker.levers import pull
from lessons.precision_memory.worker.memory import remember, weigh, weigh_hidden
from lessons.precision_memory.worker.numbers import experiment
from lessons.precision_memory.worker.scaling import train_scaled
from lessons.precision_memory.worker.trials import attempt

__all__ = ["measure", "prepare"]

_WORK = {
    Numbers: experiment,
    Scaling: train_scaled,
    Memory: weigh,
    Timeline: remember,
    Levers: pull,
    Hidden: weigh_hidden,
    Trial: attempt,
}


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point, and leave no memory to the next one."""
    set_precision(getattr(point, "precision", "float32"))
    _WORK[type(worker.plan)](worker, point)
    forget(worker)
