"""What matters of lab 00: what a launch costs, beside the bare torchrun command, and as a sweep beside one point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.engine.run import half_spread
from labkit.tables.measures import Measured, Shown, repeats, workers
from lessons.start.plan import LaunchCost
from lessons.start.tables import pairs

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[LaunchCost]:
    """Return what `make card` measures: launches in turn, of which the first is a warm-up."""
    return [LaunchCost(pairs=5 if LaunchCost.on_gpus() else 4, ways=("launch",))]


def _seconds(column: str, way: str = "launch") -> Shown:
    return lambda run: Measured.of(repeats(run, column, way=way), f"{workers(run)} that import BERT")


def _beside(column: str, way: str, other: str) -> Shown:
    """Return how a run gives the time of one way divided by another's: the median over pairs, measured back to back.

    A sweep is divided by as many launches as it has points. None where the run lacks one of the two.
    """

    def measured(run: Run) -> Measured | None:
        if not {way, other} <= {*run.plan.ways}:
            return None
        seconds = pairs(run, column)
        ratios = seconds[way] / seconds[other] / (run.plan.sweep_points if way == "sweep" else 1)
        middle, spread = float(ratios.median()), half_spread(ratios)
        return Measured(middle, middle - spread, middle + spread, len(ratios), workers(run))

    return measured


FIGURES = {
    "startup": _seconds("startup_seconds"),
    "first_row": _seconds("first_row_seconds"),
    "over_torchrun": _beside("seconds", "launch", "torchrun"),
    "first_row_over_torchrun": _beside("first_row_seconds", "launch", "torchrun"),
    "first_startup": _seconds("startup_seconds", "first"),
    "sweep_over_launches": _beside("startup_seconds", "sweep", "launch"),
}
