"""What a lab wants to reach, and how far a run gets: one object a target, so that its text and its test are one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_source

if TYPE_CHECKING:
    from labkit.engine.run import Run

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


@dataclass(frozen=True)
class Target:
    """One thing to reach: `measured` compared with `goal`, both in `unit`.

    `spread` is the half-width of the measurement: a goal that lies inside it is neither reached nor missed. A target
    without a measurement is one that no recorded run shows. A target without a comparison has no goal: it is stated.
    """

    what: str
    measured: float | None
    comparison: str = ""
    goal: float = math.nan
    unit: str = ""
    spread: float = 0.0

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
    """Return the targets as a table, one row each: lab, target, measured (three decimals), goal, unit, met."""
    rows = [(lab, one.what, one.measured, one.goal_text, one.unit, one.met) for one in targets]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["measured"] = table["measured"].astype(float).round(3)
    return table


def card_of(
    run: Run, lab: str, by_plan: Mapping[str, Callable[[Any], Sequence[Target]]], least_gpus: int = 2
) -> pd.DataFrame:
    """Return the card of what the run's plan measures; no rows without GPUs, or with fewer than `least_gpus`."""
    enough = run.plan.device == "cuda" and run.plan.gpus >= least_gpus
    targets = by_plan[run.plan.name](run) if enough and run.plan.name in by_plan else []
    return card(lab, targets)


def compare_targets(recorded: pd.DataFrame, *here: pd.DataFrame) -> pd.DataFrame:
    """Return the targets of a recorded run beside the same targets of runs on this node, one row per target.

    Takes cards. `recorded` and `here` are figures in `unit`; `met_here` is "not measured" where no run on this node
    measures the target: a small run measures none, and a target may need more GPUs than this node has.
    """
    keys = ["lab", "target", "goal", "unit"]
    recorded_card = recorded.rename(columns={"measured": "recorded", "met": "met_recorded"})
    cards = [one for one in here if len(one)]
    card_here = pd.concat(cards, ignore_index=True) if cards else recorded.iloc[:0]
    card_here = card_here.drop_duplicates(keys, keep="last").rename(columns={"measured": "here", "met": "met_here"})
    table = recorded_card.merge(card_here, on=keys, how="outer" if len(card_here) else "left", sort=False)
    for column, missing in (("met_recorded", NOT_RECORDED), ("met_here", NOT_MEASURED)):
        table[column] = table[column].astype(object).where(table[column].notna(), missing)
    return of_source(table[[*keys, "recorded", "met_recorded", "here", "met_here"]], "recorded and measured here")


def ledger_targets(memory: pd.DataFrame, sent: pd.DataFrame) -> list[Target]:
    """Return the two targets of ledgers: the largest unexplained share of a peak, and collectives equal to formula."""
    unexplained = 100 * float(memory["unexplained_share"].abs().max())
    unequal = int((~sent["equal"].astype(bool)).sum())
    return [
        Target(f"largest unexplained share, of {len(memory)} peaks", unexplained, "≤", 10, "%"),
        Target(f"collectives that are not the formula's, of {len(sent)}", unequal, "=", 0),
    ]
