"""The goals of measures, and what a run reaches of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_source
from labkit.tables.measures import Measure, Measured, measures_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

COLUMNS = ["lab", "figure", "measured", "goal", "unit", "met", "reason"]
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "≤": operator.le,
    "≥": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "within ±": lambda measured, goal: abs(measured) <= goal,
}
OPEN, NOT_RECORDED = "open", "not recorded"  # besides True and False
_MOST_DECIMALS = 9  # a figure nearer to its goal is the goal, but for rounding in its computation


def is_met(measure: Measure, reached: Measured | None) -> bool | str:
    """Return True, False, "open" where the goal lies inside the spread, or "not recorded" without a figure."""
    if reached is None or math.isnan(reached.value):
        return NOT_RECORDED
    half = (reached.high - reached.low) / 2
    half = half if half > 0 else 0.0  # NaN, of a single repeat, is none
    compare = COMPARISONS[measure.comparison]
    ends = {bool(compare(reached.value + side * half, measure.goal)) for side in (-1, 1)}
    return OPEN if len(ends) == 2 else ends.pop()


def goals_table(lab: str, reached: Iterable[tuple[Measure, Measured | None]]) -> pd.DataFrame:
    """Return goals beside what was reached, a row each: lab, figure, measured (three decimals), goal, unit, met.

    Where three decimals would show the goal itself for a figure beside it, there are more. `reason` is told of a miss.
    """
    rows = []
    for measure, figure in reached:
        met = is_met(measure, figure)
        reason = measure.reason if met is False else ""
        rows.append((lab, measure.name, _rounded(measure, figure), _text(measure), measure.unit, met, reason))
    return pd.DataFrame(rows, columns=COLUMNS)


def _text(measure: Measure) -> str:
    """Return the comparison and the goal as a reader sees them: "≤ 1.03"."""
    return f"{measure.comparison} {measure.goal:g}".removeprefix("= ")


def _rounded(measure: Measure, reached: Measured | None) -> float:
    """Return what was measured, never rounded onto a goal that it differs from; NaN where nothing was measured."""
    if reached is None:
        return math.nan
    digits = 3
    while reached.value != measure.goal == round(reached.value, digits) and digits < _MOST_DECIMALS:
        digits += 1
    return round(float(reached.value), digits)


def scorecard_of(run: Run) -> pd.DataFrame:
    """Return the goals of the run's lesson that the run measures: lab, figure, measured, goal, unit, met, reason.

    Goals are about GPUs, there are no rows for a run on CPU processes; those of links between nodes are not.
    """
    lab, gpus = run.plan.lab, run.plan.gpus if run.plan.device == "cuda" else 0
    goals = [goal for goal in measures_of(lab) if goal.comparison and goal.plan == run.plan.name]
    fitting = [
        goal for goal in goals if (run.node_count > 1 if goal.between_nodes else gpus >= max(1, goal.least_gpus))
    ]
    reached = [(goal, figure) for goal in fitting if (figure := goal.of(run)) is not None]
    return of_source(goals_table(lab, reached), run.source)
