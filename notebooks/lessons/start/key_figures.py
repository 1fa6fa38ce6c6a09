"""What the node's card shows of lab 00: how long a launch takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, repeats, workers
from lessons.start.plan import LaunchCost

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[LaunchCost]:
    """Return what `make card` measures: launches in turn, of which the first is a warm-up."""
    return [LaunchCost(pairs=5 if LaunchCost.on_gpus() else 4, ways=("launch",))]


def _seconds(column: str) -> Callable[[Run], Measured | None]:
    return lambda run: Measured.of(repeats(run, column, way="launch"), f"{workers(run)} that import BERT")


KEY_FIGURES = (
    KeyFigure(
        "start-up of workers, later launches", "s", "launchcost", _seconds("startup_seconds"), LOWER, by_host=True
    ),
    KeyFigure(
        "time to the first row, later launches", "s", "launchcost", _seconds("first_row_seconds"), LOWER, by_host=True
    ),
)
