"""What a run of lab 03 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.tables.reading import split_forecast
from labkit.labs.pipeline.tables.throughput import ERRORS, equality, speedups, throughput
from labkit.labs.pipeline.tables.timeline import predictions

COLUMNS = ["lab", "target", "measured", "goal", "unit", "met"]


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met.

    Empty for a run without GPUs or on a single one: the targets are about pipelines over GPUs.
    """
    shown = {"schedules": _schedules, "microbatches": _micro_batches, "gpus": _gpus, "splits": _splits, "trial": _trial}
    if run.plan.device != "cuda" or run.plan.gpus < 2 or run.plan.name not in shown:
        return pd.DataFrame(columns=COLUMNS).astype({"measured": float, "met": bool})
    card = pd.DataFrame(shown[run.plan.name](run), columns=COLUMNS[1:])
    card["measured"] = card["measured"].astype(float).round(3)
    card.insert(0, "lab", "pipeline")
    return card


def _schedules(run) -> list[tuple]:
    table, rows = predictions(run), []
    for _, row in table.iterrows():
        where = f"{row['schedule']}, {row['micro_batches']}"
        if row["schedule"] in ("gpipe", "1f1b"):
            step = 100 * row["residual"]
            rows.append((f"simulated step off, {where}", step, "within ± 5", "%", abs(step) <= 5))
        apart = 100 * (row["bubble_simulated"] - row["bubble_measured"])
        rows.append((f"simulated bubble off, {where}", apart, "within ± 5", "points", abs(apart) <= 5))
    return rows


def _micro_batches(run) -> list[tuple]:
    rates = throughput(run).pivot_table(index="micro_batches", columns="mode", values="samples_per_s")
    rows = []
    if "training" in rates:
        best = rates["training"].idxmax()
        rows.append(("best micro-batch count, training", best, "> 4", "micro-batches", best > 4))
    if "streaming" in rates and {4, 16} <= set(rates.index):
        falls = rates.loc[16, "streaming"] / rates.loc[4, "streaming"]
        rows.append(("streaming throughput, 16 over 4 micro-batches", falls, "< 1", "×", falls < 1))
    return rows


def _gpus(run) -> list[tuple]:
    table = speedups(throughput(run))
    last = table[table["mode"] == "streaming"].iloc[-1:]
    return [
        (
            f"streaming speed-up over linear, {row['ranks']} GPUs",
            row["share_of_limit"],
            "≥ 0.9",
            "×",
            row["share_of_limit"] >= 0.9,
        )
        for _, row in last.iterrows()
    ]


def _splits(run) -> list[tuple]:
    table = split_forecast(run)
    return [
        (
            f"{row['split']} over {table.attrs['even']}, forecast off",
            100 * row["error"],
            "within ± 5",
            "%",
            abs(row["error"]) <= 0.05,
        )
        for _, row in table.iterrows()
        if row["split"] != table.attrs["even"]
    ]


def _trial(run) -> list[tuple]:
    right = equality(run)[lambda t: t["variant"] == "right"]
    worst = right[ERRORS].max(axis=None)
    name = f"largest error of outputs, loss, gradients, of {len(right)}"
    return [(name, 1e6 * worst, "≤ 1000", "millionths", worst <= 1e-3)]
