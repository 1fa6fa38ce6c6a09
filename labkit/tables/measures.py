"""A lesson's measures: each figure that matters is declared once, for the card, the scorecard and comparisons.

A lesson's `measures.py` holds `MEASURES`, and `card_plans()` where `make card` measures them on a node.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.provenance import of_source
from labkit.repository import LESSONS
from labkit.tables.key_figures import HIGHER, KeyFigure, Measured, workers
from labkit.tables.targets import GPU, HOST, Target, card

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One figure of a lesson: how a run gives it, what physics allows, what is to be reached, what it depends on.

    plan: the lower-case name of the plan whose runs show it. measured: the figure as a run shows it, in `unit`, with
    its physical limit where there is one; None where the run does not show it. better: HIGHER or LOWER. comparison and
    goal: such as "≤" and 1.05; no goal without a comparison. depends_on: CODE, which any machine shows; GPU, also its
    links; HOST, as a step whose kernels the host enqueues. least_gpus: 0 for a figure that CPU processes show, too.
    on_card: whether a node's card shows it. between_nodes: its goal is one of runs on several nodes, GPUs or not.
    """

    name: str
    unit: str
    plan: str
    measured: Callable[[Run], Measured | None]
    better: str = HIGHER
    comparison: str = ""
    goal: float = math.nan
    depends_on: str = GPU
    least_gpus: int = 0
    on_card: bool = True
    between_nodes: bool = False

    @property
    def key_figure(self) -> KeyFigure:
        """The measure as a node's card shows it."""
        by_host = self.depends_on == HOST
        return KeyFigure(self.name, self.unit, self.plan, self.measured, self.better, self.least_gpus, by_host)

    @property
    def goal_alone(self) -> Target:
        """The goal, which nothing has measured."""
        return Target(self.name, None, self.comparison, self.goal, self.unit, depends_on=self.depends_on)

    def target(self, run: Run) -> Target | None:
        """Return the goal beside what the run reached; None where the run does not show the measure."""
        if (shown := self.measured(run)) is None:
            return None
        return replace(self.goal_alone, measured=shown.value, spread=(shown.high - shown.low) / 2)


def ratio(dividend: Measured | None, divisor: Measured | None) -> Measured | None:
    """Return the quotient of two figures; its quartiles are as far from it as theirs together, in relation to them.

    None where one of the two was not measured.
    """
    if dividend is None or divisor is None:
        return None
    value = dividend.value / divisor.value
    reach = value * sum((one.high - one.low) / (2 * one.value) for one in (dividend, divisor))
    repeats = min(dividend.repeats, divisor.repeats)
    return replace(dividend, value=value, low=value - reach, high=value + reach, repeats=repeats, limit=math.nan)


def figure(run: Run, value: float, spread: float = 0.0) -> Measured:
    """Return a figure that a run's table gives with its half-width, which NaN, of a single repeat, is not."""
    reach = 0.0 if math.isnan(spread) else float(spread)
    return Measured(float(value), value - reach, value + reach, 1, workers(run))


def measures_of(lab: str) -> tuple[Measure, ...]:
    """Return the measures of the lesson of this name, such as "broadcast"; none where it declares none."""
    declared = (LESSONS / lab / "measures.py").exists()
    return importlib.import_module(f"lessons.{lab}.measures").MEASURES if declared else ()


def scorecard_of(run: Run) -> pd.DataFrame:
    """Return the goals of the run's lesson that the run measures: lab, target, measured, goal, unit, met.

    Goals are about GPUs, there are no rows for a run on CPU processes; those of links between nodes are not.
    """
    lab, gpus = run.plan.lab, run.plan.gpus if run.plan.device == "cuda" else 0
    goals = [one for one in measures_of(lab) if one.comparison and one.plan == run.plan.name]
    fitting = [one for one in goals if (run.node_count > 1 if one.between_nodes else gpus >= max(1, one.least_gpus))]
    targets = [target for one in fitting if (target := one.target(run)) is not None]
    conditions = run.key_conditions() if targets else {}
    of_targets = {(lab, one.what): (one.depends_on, conditions) for one in targets}
    return of_source(card(lab, targets), run.source, of_targets=of_targets)
