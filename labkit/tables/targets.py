"""What a lab wants to reach, and how far a run gets: one object a target, so that its text and its test are one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node.comparability import MEASURED, differing
from labkit.provenance import fact, fact_or, of_source, sources

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


def card_of(
    run: Run,
    lab: str,
    by_plan: Mapping[str, Callable[[Any], Sequence[Target]]],
    least_gpus: int = 2,
    counted: Container[str] = (),
) -> pd.DataFrame:
    """Return the card of what the run's plan measures; no rows without GPUs, or with fewer than `least_gpus`.

    The targets of plans in `counted`, which are recorded on machines of several sizes, name their number of GPUs.
    """
    enough = run.plan.device == "cuda" and run.plan.gpus >= least_gpus
    targets = by_plan[run.plan.name](run) if enough and run.plan.name in by_plan else []
    if run.plan.name in counted:
        targets = [_counted(one, run.plan.gpus) for one in targets]
    table = card(lab, targets)
    conditions = run.key_conditions() if targets else {}
    of_targets = {key: (depends_on, conditions) for key, (depends_on, _) in fact(table, "of_targets").items()}
    return of_source(table, run.source, of_targets=of_targets)


def _counted(target: Target, gpus: int) -> Target:
    """Return the target, named with the number of GPUs that measured it, where its name does not say so yet."""
    return target if "GPU" in target.what else replace(target, what=f"{target.what}, {gpus} GPUs")


def join_cards(*cards: pd.DataFrame) -> pd.DataFrame:
    """Return the cards as one, which knows the conditions under which each target was measured.

    Of a target that several runs measure, those of the last count.
    """
    filled = [one for one in cards if len(one)]
    if not filled:
        return card("", [])
    of_targets = {key: value for one in filled for key, value in fact_or(one, "of_targets", {}).items()}
    return of_source(pd.concat(filled, ignore_index=True), sources(*filled), of_targets=of_targets)


def compare_targets(recorded: pd.DataFrame, *here: pd.DataFrame) -> pd.DataFrame:
    """Return the targets of a recorded run beside the same targets of runs on this node, one row per target.

    Takes cards. `recorded` and `here` are figures in `unit`; `met_here` is "not measured" where no run on this node
    measures the target: a small run measures none, and a target may need more GPUs than this node has. `conditions`
    says whether the two figures are comparable, or what differs between the runs' conditions as far as this measure
    depends on it; "not known" where one of the runs has not measured its conditions.
    """
    keys = ["lab", "target", "goal", "unit"]
    recorded_card = recorded.rename(columns={"measured": "recorded", "met": "met_recorded"})
    joined = join_cards(*here)
    card_here = joined if len(joined) else recorded.iloc[:0]
    card_here = card_here.drop_duplicates(keys, keep="last").rename(columns={"measured": "here", "met": "met_here"})
    table = recorded_card.merge(card_here, on=keys, how="outer" if len(card_here) else "left", sort=False)
    for column, missing in (("met_recorded", NOT_RECORDED), ("met_here", NOT_MEASURED)):
        table[column] = table[column].astype(object).where(table[column].notna(), missing)
    ways = [fact_or(one, "of_targets", {}) for one in (recorded, joined)]
    both = table[["recorded", "here"]].notna().all(axis=1)
    table["conditions"] = [
        comparable(*(way.get(key, (GPU, {})) for way in ways)) if measured else "–"
        for key, measured in zip(zip(table["lab"], table["target"], strict=True), both, strict=True)
    ]
    shown = [*keys, "recorded", "met_recorded", "here", "met_here", "conditions"]
    return of_source(table[shown], "recorded and measured here")


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


def ledger_targets(memory: pd.DataFrame, sent: pd.DataFrame) -> list[Target]:
    """Return the two targets of ledgers: the largest unexplained share of a peak, and collectives equal to formula."""
    unexplained = 100 * float(memory["unexplained_share"].abs().max())
    unequal = int((~sent["equal"].astype(bool)).sum())
    return [
        Target(f"largest unexplained share, of {len(memory)} peaks", unexplained, "≤", 10, "%", depends_on=CODE),
        Target(f"collectives that are not the formula's, of {len(sent)}", unequal, "=", 0, depends_on=CODE),
    ]
