"""The student's `timed`, called with the steps of a simulated device."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from labkit.engine.function import function_of
from labkit.engine.worker import Worker
from lessons.benchmarking.worker.device import drive


def try_answer(worker: Worker, point: SimpleNamespace) -> None:
    """Append what the student's function returned for one kind of step, and its calls of the device."""
    if not callable(worker.state):
        worker.state = function_of(Path(worker.plan.answers) / "benchmarking_timed.py", "timed")
    worker.record(iteration=0, **drive(worker.state, point.situation))
