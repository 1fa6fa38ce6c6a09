"""What a run of lab 13 reaches of the lab's targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, HOST, Target, card, card_of
from lessons.scaling.tables.epochs import ladder, parts, scaling
from lessons.scaling.tables.exchange import exchange, symptoms
from lessons.scaling.theory import bucket_count, model

if TYPE_CHECKING:
    from labkit.engine.run import Run

GOAL_EFFICIENCY, GOAL_REST, GOAL_APART = 0.95, 3.0, 5.0
_REST = "largest part of an epoch that nothing explains"
_APART = "three ways of measuring an all-reduce, most apart"
_EFFICIENCY = "efficiency at 2 GPUs, 512 images per GPU, {} loader"
EXPECTED = (
    *(Target(_EFFICIENCY.format(loader), None, "≥", GOAL_EFFICIENCY, "×") for loader in ("device", "host")),
    Target(_REST, None, "≤", GOAL_REST, "%"),
    Target(_APART, None, "≤", GOAL_APART, "points"),
)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none without several GPUs."""
    shown = {"epochs": _epochs, "communication": _communication, "knobs": _knobs, "trial": _trial}
    return card_of(run, "scaling", shown, least_gpus=1 if run.plan.name == "knobs" else 2)


def targets_of(runs: Iterable[Run]) -> pd.DataFrame:
    """Return the targets that some runs show, then those that the lab expects and none of these runs shows."""
    found = pd.concat([scorecard(run) for run in runs], ignore_index=True)
    missing = card("scaling", [one for one in EXPECTED if one.what not in set(found["target"])])
    return pd.concat([found, missing.astype({"met": object})], ignore_index=True)


def caught(table: pd.DataFrame) -> pd.Series:
    """Return, for each row of `symptoms`, whether its numbers give a fault away."""
    return (
        (table["distinct"] < 1)
        | (table["repeated"] > 0.5)
        | (table["validated"] < 1)
        | ((table["rate_over_due"] - 1).abs() > 0.01)
        | (table["claimed_s"] != table["later_s"])
    )


def _epochs(run: Run) -> list[Target]:
    targets = []
    for loader in run.plan.loaders:
        table = scaling(run, loader)
        rows = table[(table["law"] == "weak") & (table["ranks"] == 2) & (table["fixed"] == 512)]
        for row in rows.itertuples():
            what = _EFFICIENCY.format(loader)
            efficiency, spread = float(row.efficiency), float(row.spread_efficiency)
            targets.append(Target(what, efficiency, "≥", GOAL_EFFICIENCY, "×", spread, depends_on=HOST))
    return [*targets, Target(_REST, 100 * float(parts(run)["rest_share"].max()), "≤", GOAL_REST, "%", depends_on=HOST)]


def _communication(run: Run) -> list[Target]:
    table = exchange(run)
    whole = 4 * model(run.plan.width, run.plan.blocks).parameters
    wrong = (table["sent_bytes"] != whole) | (table["calls"] != bucket_count(run.plan.width, run.plan.blocks))
    return [
        Target(_APART, float(table.loc[table["ranks"] > 1, "apart_points"].max()), "≤", GOAL_APART, "points"),
        Target(
            f"settings whose gradients are not the formula's, of {len(table)}",
            float(wrong.sum()),
            "=",
            0,
            depends_on=CODE,
        ),
    ]


def _knobs(run: Run) -> list[Target]:
    table = ladder(run)
    return [
        Target("fastest rung over the plain float32 loop", float(table["times_first"].max()), unit="×", depends_on=HOST)
    ]


def _trial(run: Run) -> list[Target]:
    """Return how many wrong trainings are caught; a right one that is accused counts against them."""
    table = symptoms(run)
    wrong, accused = table["variant"] != "right", caught(table)
    score = accused[wrong].sum() - accused[~wrong].sum()
    return [Target(f"wrong trainings caught, of {wrong.sum()}", float(score), "=", int(wrong.sum()), depends_on=CODE)]
