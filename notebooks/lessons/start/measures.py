"""What matters of lab 00: what a launch costs, beside the bare torchrun command, and as a sweep beside one point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.engine.run import half_spread
from labkit.tables.measures import Measured, repeats, workers
from lessons.start.plan import LaunchCost
from lessons.start.tables import pairs

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[LaunchCost]:
    """Return what `make card` measures: launches in turn, of which the first is a warm-up."""
    return [LaunchCost(pairs=5 if LaunchCost.on_gpus() else 4, ways=("launch",))]


def seconds(run: Run, column: str, way: str = "launch") -> Measured | None:
    return Measured.of(repeats(run, column, way=way), f"{workers(run)} that import BERT")


def beside(run: Run, column: str, way: str, other: str) -> Measured | None:
    """Return the time of one way divided by another's: the median over pairs, measured back to back.

    A sweep is divided by as many launches as it has points. None where the run lacks one of the two.
    """
    if not {way, other} <= {*run.plan.ways}:
        return None
    table = pairs(run, column)
    ratios = table[way] / table[other] / (run.plan.sweep_points if way == "sweep" else 1)
    middle, spread = float(ratios.median()), half_spread(ratios)
    return Measured(middle, middle - spread, middle + spread, len(ratios), workers(run))
