"""What a run of lab 09 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.collectives.tables.measured import against, bandwidths, rings, symptoms
from labkit.tables.targets import card_of

GOAL = 0.98
LARGE = 64 * 2**20
LATE = 0.1  # of what the clock showed


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without several GPUs."""
    shown = {"sweep": _sweep, "nccltests": _nccl_tests, "ring": _ring, "trial": _trial}
    return card_of(run, "collectives", shown)


def caught(table: pd.DataFrame) -> pd.Series:
    """Say of each row of `symptoms` whether its numbers give a fault away."""
    cold, late = table["calls_before"] == 0, table["late_seconds"] > LATE * table["seconds"]
    factor = (table["claimed_gb_per_s"] / table["bus_gb_per_s"] - 1).abs() > LATE
    return cold | late | factor | (table["wrong_ranks"] > 0)


def _sweep(run) -> list[tuple]:
    table = bandwidths(run)
    wrong, beaten = int((table["status"] != "ok").sum()), int((table["verdict"] == "impossible").sum())
    return [
        (f"settings not measured and verified, of {len(table)}", wrong, "0", "", wrong == 0),
        ("settings that beat physics", beaten, "0", "", beaten == 0),
    ]


def _nccl_tests(run) -> list[tuple]:
    table = against(run)
    worst = table[table["bytes"] >= LARGE].groupby("collective", sort=False)["ratio"].min(skipna=False)
    return [
        (f"{name} over nccl-tests, from 64 MiB on", ratio, "≥ 0.98", "×", ratio >= GOAL)
        for name, ratio in worst.items()
    ]


def _ring(run) -> list[tuple]:
    table = rings(run)
    wrong = int(((table["status"] != "ok") | (table["sent_bytes"] != table["formula_bytes"])).sum())
    return [(f"rings not right or not of the formula, of {len(table)}", wrong, "0", "", wrong == 0)]


def _trial(run) -> list[tuple]:
    table = symptoms(run)
    wrong = table["variant"] != "right"
    found, accused = int(caught(table)[wrong].sum()), int(caught(table)[~wrong].sum())
    total = int(wrong.sum())
    return [(f"wrong benchmarks caught, of {total}", found, f"{total}", "", found == total and not accused)]
