"""What matters of lab 00: what a launch costs, beside the bare torchrun command, and as a sweep beside one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.tables.measures import HOST, LOWER, Measure, Measured, repeats, workers
from lessons.start.plan import LaunchCost
from lessons.start.tables import half_spread, pairs

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[LaunchCost]:
    """Return what `make card` measures: launches in turn, of which the first is a warm-up."""
    return [LaunchCost(pairs=5 if LaunchCost.on_gpus() else 4, ways=("launch",))]


def _seconds(column: str, way: str = "launch") -> Callable[[Run], Measured | None]:
    return lambda run: Measured.of(repeats(run, column, way=way), f"{workers(run)} that import BERT")


def _beside(column: str, way: str, other: str) -> Callable[[Run], Measured | None]:
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


_LAUNCH: dict[str, Any] = {"plan": "launchcost", "better": LOWER, "depends_on": HOST}
_GOAL: dict[str, Any] = _LAUNCH | {"unit": "×", "comparison": "≤", "on_card": False}
_IN_SECONDS: dict[str, Any] = _GOAL | {"unit": "s"}

MEASURES = (
    Measure(name="start-up of workers, later launches", unit="s", measured=_seconds("startup_seconds"), **_LAUNCH),
    Measure(name="time to the first row, later launches", unit="s", measured=_seconds("first_row_seconds"), **_LAUNCH),
    Measure(
        name="time of launch, divided by the bare torchrun command",
        measured=_beside("seconds", "launch", "torchrun"),
        goal=1.10,
        **_GOAL,
    ),
    Measure(
        name="time to a later launch's first row, divided by torchrun's",
        measured=_beside("first_row_seconds", "launch", "torchrun"),
        goal=0.25,
        **_GOAL,
    ),
    Measure(
        name="start-up of a first launch, 20 s after the set-up cell",
        measured=_seconds("startup_seconds", "first"),
        goal=1.5,
        **_IN_SECONDS,
    ),
    Measure(
        name="start-up of a 20-point sweep, divided by that of 20 launches",
        measured=_beside("startup_seconds", "sweep", "launch"),
        goal=0.10,
        **_GOAL,
    ),
)
