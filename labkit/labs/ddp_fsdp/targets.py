"""What a run of lab 04 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.ddp_fsdp.tables.measured import ERRORS, equality, memory, throughput
from labkit.tables.ledgers import sent
from labkit.tables.rates import ladder
from labkit.tables.targets import card_of, ledger_targets


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without several GPUs."""
    shown = {"strategies": _strategies, "knobs": _knobs, "trial": _trial}
    return card_of(run, "ddp_fsdp", shown)


def _strategies(run) -> list[tuple]:
    table, gpus = throughput(run), run.plan.gpus
    rows = [
        (
            f"{row.strategy} over {gpus} GPUs alone, batch {row.batch}",
            row.efficiency,
            "≥ 0.95",
            "×",
            row.efficiency >= 0.95,
        )
        for row in table.itertuples()
        if row.strategy == "ddp"
    ]
    ddp = table[(table["strategy"] == "ddp") & (table["batch"] == 64)]
    if gpus == 4 and len(ddp):
        rate = ddp["samples_per_s"].iloc[0]
        rows.append(("DDP, float32, batch 64, 4 GPUs", rate, "≥ 415", "samples/s", rate >= 415))
    return rows + ledger_targets(memory(run), sent(run))


def _knobs(run) -> list[tuple]:
    best = ladder(run)["times_first"].max()
    return [("fastest over the reports' configuration", best, "≥ 4", "×", best >= 4)]


def _trial(run) -> list[tuple]:
    table = equality(run)
    worst = table[ERRORS].max(axis=None)
    return [
        (f"largest error of losses and updates, of {len(table)}", 1e6 * worst, "≤ 1000", "millionths", worst <= 1e-3)
    ]
