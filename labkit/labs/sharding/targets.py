"""What a run of lab 05 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.sharding.tables import training
from labkit.tables import rates
from labkit.tables.targets import card_of, ledger_targets

PUBLISHED = 32582  # tokens/s on one GPU, as the report prints


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without a GPU."""
    shown = {"strategies": _strategies, "ladder": _ladder, "batches": _batches, "profiles": _profiles, "trial": _trial}
    return card_of(run, "sharding", shown, least_gpus=1)


def _ladder(run) -> list[tuple]:
    table = training.ladder(run)
    best = table.loc[table["tokens_per_s"].idxmax()]
    times = best["tokens_per_s"] / PUBLISHED
    return [
        (f"one GPU, tokens/s over the published {PUBLISHED}", times, "≥ 3", "×", times >= 3),
        ("MFU there, of the bfloat16 rate", 100 * best["mfu"], "stated", "%", True),
    ]


def _batches(run) -> list[tuple]:
    table = training.batches(run).dropna(subset=["peak_mib"])
    worst = 100 * (1 - table["predicted_mib"] / table["peak_mib"]).abs().max()
    return [(f"largest unexplained share, one GPU, of {len(table)} peaks", worst, "≤ 10", "%", worst <= 10)]


def _strategies(run) -> list[tuple]:
    table = rates.strategies(run)
    rows = [
        (
            f"{row.strategy} on {row.ranks} GPUs, {row.micro_batch} sequences each",
            row.efficiency,
            "≥ 0.95",
            "×",
            row.efficiency >= 0.95,
        )
        for row in table.itertuples()
        if row.load == "large" and row.strategy in ("ddp", "fsdp_full")
    ]
    return rows + ledger_targets(training.memory(run), training.sent(run))


def _profiles(run) -> list[tuple]:
    return [
        (f"overlap methods apart, {row.strategy}", row.apart_points, "≤ 3", "points", row.apart_points <= 3)
        for row in training.overlap(run).itertuples()
    ]


def _trial(run) -> list[tuple]:
    worst = training.equality(run)[["loss_error", "update_error"]].max(axis=None)
    return [("largest error of losses and updates", 1e6 * worst, "≤ 1000", "millionths", worst <= 1e-3)]
