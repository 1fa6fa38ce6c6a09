"""What a run of lab 03 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.provenance import fact
from labkit.tables.targets import CODE, HOST, Target, card_of
from lessons.pipeline.tables.forecast import split_forecast
from lessons.pipeline.tables.throughput import ERRORS, equality, speedups, throughput
from lessons.pipeline.tables.timeline import predictions

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show: lab, target, measured, goal, unit, met.

    Empty for a run without GPUs or on a single one: the targets are about pipelines over GPUs.
    """
    by_plan = {"schedules": _schedules, "microbatches": _micro_batches, "gpus": _gpus, "splits": _splits}
    return card_of(run, "pipeline", by_plan | {"trial": _trial})


def _schedules(run: Run) -> list[Target]:
    targets = []
    for _, row in predictions(run).iterrows():
        where = f"{row['schedule']}, {row['micro_batches']}"
        if row["schedule"] in ("gpipe", "1f1b"):
            spread = 100 * row["spread_residual"]
            step = Target(
                f"simulated step off, {where}",
                100 * row["residual"],
                "within ±",
                5,
                "%",
                spread=spread,
                depends_on=HOST,
            )
            targets.append(step)
        apart = 100 * (row["bubble_simulated"] - row["bubble_measured"])
        targets.append(Target(f"simulated bubble off, {where}", apart, "within ±", 5, "points", depends_on=HOST))
    return targets


def _micro_batches(run: Run) -> list[Target]:
    if run.plan.ranks:  # the targets are about all GPUs of the node
        return []
    table, targets = throughput(run), []
    rates = table.pivot_table(index="micro_batches", columns="mode", values="samples_per_s")
    spreads = table.pivot_table(index="micro_batches", columns="mode", values="spread_samples_per_s") / rates
    if "training" in rates:
        best = rates["training"].idxmax()
        targets.append(Target("best micro-batch count, training", best, ">", 4, "micro-batches", depends_on=HOST))
    if "streaming" in rates and {4, 16} <= set(rates.index):
        ratio = rates.loc[16, "streaming"] / rates.loc[4, "streaming"]
        spread = ratio * spreads.loc[[4, 16], "streaming"].sum()
        targets.append(
            Target("streaming throughput, 16 over 4 micro-batches", ratio, "<", 1, "×", spread=spread, depends_on=HOST)
        )
    return targets


def _gpus(run: Run) -> list[Target]:
    table = speedups(throughput(run))
    streaming = table[table["mode"] == "streaming"]
    if len(streaming) < 2:  # one number of GPUs has no speed-up
        return []
    first, last = streaming.iloc[0], streaming.iloc[-1]
    share = last["share_of_limit"]
    spread = share * sum(row["spread_samples_per_s"] / row["samples_per_s"] for row in (first, last))
    return [
        Target(
            f"streaming speed-up over linear, {last['ranks']} GPUs",
            share,
            "≥",
            0.9,
            "×",
            spread=spread,
            depends_on=HOST,
        )
    ]


def _splits(run: Run) -> list[Target]:
    table = split_forecast(run)
    even = table[table["split"] == fact(table, "even")].iloc[0]
    targets = []
    for _, row in table[table["split"] != even["split"]].iterrows():
        spread = (1 + row["error"]) * sum(one["spread_step_ms"] / one["step_ms"] for one in (row, even))
        what = f"{row['split']} over {even['split']}, forecast off"
        targets.append(Target(what, 100 * row["error"], "within ±", 5, "%", spread=100 * spread, depends_on=HOST))
    return targets


def _trial(run: Run) -> list[Target]:
    table = equality(run)
    right = table[table["variant"] == "right"]
    name = f"largest error of outputs, loss, gradients, of {len(right)}"
    return [Target(name, 1e6 * right[ERRORS].max(axis=None), "≤", 1000, "millionths", depends_on=CODE)]
