"""What a run of lab 06 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, HOST, Target, card_of
from labkit.theory.transformer import NAMES
from lessons.benchmarking.tables.launches import launches
from lessons.benchmarking.tables.profiles import accounts
from lessons.benchmarking.tables.steps import steps
from lessons.benchmarking.tables.trials import wrong_by_rows
from lessons.benchmarking.theory import NAMES as MODE_NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_ERROR, _APART = 10, 3  # percent
_CLOCKS = "profiler's window against the clock of the same forwards, at most"
_MODEL = "launch model's largest error, the five sizes' fastest eager forwards"
_COMPILED = ("compiled", "compiled_graph")
_CAUGHT = "broken benchmarks caught, of 5"


def _step(model: str, ms: float | None = None, spread: float = 0.0) -> Target:
    return Target(f"{model}: compiled bfloat16 AdamW step", ms, unit="ms", spread=spread, depends_on=HOST)


def _mfu(model: str, mode: str, percent: float | None = None) -> Target:
    return Target(f"{model}: MFU of the step, {MODE_NAMES[mode]}", percent, unit="%", depends_on=HOST)


EXPECTED = (
    *(target for model in NAMES for target in (_step(model), *(_mfu(model, mode) for mode in _COMPILED))),
    Target(_MODEL, None, "≤", _ERROR, "%"),
    Target(_CLOCKS, None, "≤", _APART, "%"),
    Target(_CAUGHT, None, "=", 5),
)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show: lab, target, measured, goal, unit, met; none without a GPU."""
    by_plan = {"steps": _steps, "launches": _launches, "profiles": _profiles, "trial": _trial}
    return card_of(run, "benchmarking", by_plan, least_gpus=1)


def _steps(run: Run) -> list[Target]:
    table = steps(run)
    table = table[(table["precision"] == "autocast") & (table["phase"] == "step")].set_index(["model", "mode"])
    targets = []
    for model in run.plan.models:
        compiled = table.loc[(model, "compiled")]
        targets.append(_step(model, compiled["ms"], compiled["spread_ms"]))
        targets += [_mfu(model, mode, 100 * table.loc[(model, mode), "mfu"]) for mode in _COMPILED]
    return targets


def _launches(run: Run) -> list[Target]:
    table = launches(run)
    sizes = table[table["axis"] == "model"]
    worst = sizes.loc[sizes["error"].abs().idxmax()]
    return [Target(_MODEL, 100 * float(abs(worst["error"])), "≤", _ERROR, "%", depends_on=HOST)]


def _profiles(run: Run) -> list[Target]:
    table = accounts(run)
    forwards = table[table["phase"] == "forward"]
    return [Target(_CLOCKS, 100 * float(forwards["apart"].abs().max()), "≤", _APART, "%", depends_on=HOST)]


def _trial(run: Run) -> list[Target]:
    rows = run.rows[run.rows["variant"] != "right"]
    caught = [row["variant"] in wrong_by_rows(row) for row in rows.to_dict("records")]
    return [Target(_CAUGHT, float(sum(caught)), "=", 5, depends_on=CODE)]
