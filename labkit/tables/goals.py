"""The goals of measures: what a run reaches of them, and whether two runs' figures may be compared."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node.comparability import MEASURED_HOST, differences_between
from labkit.provenance import of_source
from labkit.tables.measures import CODE, HOST, Measure, Measured, measures_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

COLUMNS = ["lab", "target", "measured", "goal", "unit", "met", "reason"]
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "≤": operator.le,
    "≥": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "within ±": lambda measured, goal: abs(measured) <= goal,
}
OPEN, NOT_RECORDED = "open", "not recorded"  # besides True and False
COMPARABLE, NOT_KNOWN = "comparable", "not known"
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
    """Return goals beside what was reached, a row each: lab, target, measured (three decimals), goal, unit, met.

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
    """Return the goals of the run's lesson that the run measures: lab, target, measured, goal, unit, met, reason.

    Goals are about GPUs, there are no rows for a run on CPU processes; those of links between nodes are not. The fact
    `of_targets` holds, by lab and target, what each depends on and the key figures of the run's conditions.
    """
    lab, gpus = run.plan.lab, run.plan.gpus if run.plan.device == "cuda" else 0
    goals = [goal for goal in measures_of(lab) if goal.comparison and goal.plan == run.plan.name]
    fitting = [
        goal for goal in goals if (run.node_count > 1 if goal.between_nodes else gpus >= max(1, goal.least_gpus))
    ]
    reached = [(goal, figure) for goal in fitting if (figure := goal.of(run)) is not None]
    conditions = run.key_conditions() if reached else {}
    of_targets = {(lab, goal.name): (goal.depends_on, conditions) for goal, _ in reached}
    return of_source(goals_table(lab, reached), run.source, of_targets=of_targets)


def comparable(
    recorded: tuple[str, dict[str, Any]], here: tuple[str, dict[str, Any]], first: str = "the recorded run"
) -> str:
    """Return whether two figures of one target are comparable, or what differs between their runs' conditions.

    Each is what the measure depends on, and the key figures of its run's conditions; `first` names the recorded run.
    """
    depends_on, a, b = here[0], here[1], recorded[1]
    if depends_on == CODE:
        return COMPARABLE
    models = [conditions.get("processor") for conditions in (a, b)]
    if None not in models and models[0] != models[1]:
        return f"{models[0]} in this run and {models[1]} in {first}"
    ranks = [conditions.get("ranks") for conditions in (a, b)]
    if None not in ranks and ranks[0] != ranks[1]:
        return f"{ranks[0]:g} GPUs in this run and {ranks[1]:g} in {first}"
    differences = [
        difference for difference in differences_between(a, b) if depends_on == HOST or not difference.host_only
    ]
    if differences:
        return "; ".join(difference.sentence("this run", first) for difference in differences)
    return COMPARABLE if all({*conditions} & MEASURED_HOST for conditions in (a, b)) else NOT_KNOWN
