"""What a lab wants to reach, and how far a run gets: one object a target, so that its text and its test are one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node.comparability import MEASURED, differing
from labkit.provenance import of_source

if TYPE_CHECKING:
    pass

COLUMNS = ["lab", "target", "measured", "goal", "unit", "met"]
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "≤": operator.le,
    "≥": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "within ±": lambda measured, goal: abs(measured) <= goal,
}
OPEN, NOT_RECORDED, STATED = "open", "not recorded", "stated"  # besides True and False
NOT_MEASURED = "not measured"  # on this node
CODE, GPU, HOST = "code", "gpu", "host"  # what a measure depends on
COMPARABLE, NOT_KNOWN = "comparable", "not known"
_MOST_DECIMALS = 9  # a figure nearer to its goal is the goal, but for rounding in its computation


@dataclass(frozen=True)
class Target:
    """One thing to reach: `measured` compared with `goal`, both in `unit`.

    `spread` is the half-width of the measurement: a goal that lies inside it is neither reached nor missed. A target
    without a measurement is one that no recorded run shows. A target without a comparison has no goal: it is stated.
    `depends_on` says what the measure depends on besides the code: GPU (also their links), HOST (also the GPU, as a
    step whose kernels the host enqueues), or CODE alone (counted bytes, errors, verdicts), which any machine shows.
    """

    what: str
    measured: float | None
    comparison: str = ""
    goal: float = math.nan
    unit: str = ""
    spread: float = 0.0
    depends_on: str = GPU

    @property
    def met(self) -> bool | str:
        """Return True, False, "open" (the goal lies inside the spread), "not recorded" or "stated" (no goal)."""
        if self.measured is None or math.isnan(self.measured):
            return NOT_RECORDED
        if not self.comparison:
            return STATED
        compare = COMPARISONS[self.comparison]
        spread = self.spread if self.spread > 0 else 0.0  # NaN, of a single repeat, is none
        ends = {bool(compare(self.measured + side * spread, self.goal)) for side in (-1, 1)}
        return OPEN if len(ends) == 2 else ends.pop()

    @property
    def goal_text(self) -> str:
        """Return the comparison and the goal as a reader sees them: "≤ 1.03"."""
        return f"{self.comparison} {self.goal:g}".removeprefix("= ") if self.comparison else "–"


def card(lab: str, targets: Iterable[Target]) -> pd.DataFrame:
    """Return the targets as a table, one row each: lab, target, measured (three decimals), goal, unit, met.

    Where three decimals would show the goal itself for a figure beside it, there are more.
    """
    listed = list(targets)
    rows = [(lab, one.what, one.measured, one.goal_text, one.unit, one.met) for one in listed]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["measured"] = [_rounded(one) for one in listed]
    return of_source(table, "targets", of_targets={(lab, one.what): (one.depends_on, {}) for one in listed})


def _rounded(target: Target) -> float:
    """Return what was measured, never rounded onto a goal that it differs from; NaN where nothing was measured."""
    if target.measured is None:
        return math.nan
    digits = 3
    while target.measured != target.goal == round(target.measured, digits) and digits < _MOST_DECIMALS:
        digits += 1
    return round(float(target.measured), digits)


def comparable(
    recorded: tuple[str, dict[str, Any]], here: tuple[str, dict[str, Any]], first: str = "the recorded run"
) -> str:
    """Return whether two figures of one target are comparable, or what differs between their runs' conditions.

    Each is what the measure depends on, and the key figures of its run's conditions; `first` names the recorded run.
    """
    depends_on, a, b = here[0], here[1], recorded[1]
    if depends_on == CODE:
        return COMPARABLE
    models = [one.get("processor") for one in (a, b)]
    if None not in models and models[0] != models[1]:
        return f"{models[0]} in this run and {models[1]} in {first}"
    ranks = [one.get("ranks") for one in (a, b)]
    if None not in ranks and ranks[0] != ranks[1]:
        return f"{ranks[0]:g} GPUs in this run and {ranks[1]:g} in {first}"
    found = [one for one in differing(a, b) if depends_on == HOST or not one.host_only]
    if found:
        return "; ".join(one.said("this run", first) for one in found)
    return COMPARABLE if all({*one} & MEASURED for one in (a, b)) else NOT_KNOWN
