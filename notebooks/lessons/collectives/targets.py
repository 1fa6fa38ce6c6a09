"""What a run of lab 09 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, Target, card_of
from lessons.collectives.tables import against, bandwidths, rings, symptoms
from lessons.collectives.theory import AGAINST_FROM_BYTES, AGAINST_GOAL

if TYPE_CHECKING:
    from labkit.engine.run import Run

_LATE = 0.1  # of what the clock showed


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none without several GPUs."""
    shown = {"sweep": _sweep, "nccltests": _nccl_tests, "ring": _ring, "trial": _trial}
    return card_of(run, "collectives", shown, counted=("sweep", "nccltests", "ring"))


def caught(table: pd.DataFrame) -> pd.Series:
    """Return, for each row of `symptoms`, whether its numbers give a fault away."""
    cold, late = table["calls_before"] == 0, table["late_seconds"] > _LATE * table["seconds"]
    factor = (table["claimed_gb_per_s"] / table["bus_gb_per_s"] - 1).abs() > _LATE
    return cold | late | factor | (table["wrong_ranks"] > 0)


def _sweep(run: Run) -> list[Target]:
    table = bandwidths(run)
    wrong, beaten = (table["status"] != "ok").sum(), (table["verdict"] == "impossible").sum()
    return [
        Target(f"settings not measured and verified, of {len(table)}", float(wrong), "=", 0, depends_on=CODE),
        Target("settings that beat physics", float(beaten), "=", 0, depends_on=CODE),
    ]


def _nccl_tests(run: Run) -> list[Target]:
    """Return a target per collective: the lowest ratio, with the spread of our times at that size."""
    targets = []
    table = against(run)
    for name, rows in table[table["bytes"] >= AGAINST_FROM_BYTES].groupby("collective", sort=False):
        what = f"{name} over nccl-tests, ≥ 64 MiB"
        if rows["ratio"].isna().any():  # the sizes that are left do not speak for the others
            targets.append(Target(what, None, "≥", AGAINST_GOAL, "×"))
            continue
        lowest = rows.loc[rows["ratio"].idxmin()]
        spread = float(lowest["ratio"] * lowest["spread_share"])
        targets.append(Target(what, float(lowest["ratio"]), "≥", AGAINST_GOAL, "×", spread))
    return targets


def _ring(run: Run) -> list[Target]:
    table = rings(run)
    wrong = ((table["status"] != "ok") | (table["sent_bytes"] != table["formula_bytes"])).sum()
    return [Target(f"rings not right or not of the formula, of {len(table)}", float(wrong), "=", 0, depends_on=CODE)]


def _trial(run: Run) -> list[Target]:
    """Return how many wrong benchmarks are caught; a right one that is accused counts against them."""
    table = symptoms(run)
    wrong, accused = table["variant"] != "right", caught(table)
    score = accused[wrong].sum() - accused[~wrong].sum()
    return [Target(f"wrong benchmarks caught, of {wrong.sum()}", float(score), "=", int(wrong.sum()), depends_on=CODE)]
