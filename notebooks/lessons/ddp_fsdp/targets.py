"""What a run of lab 04 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.equality import equality, equality_targets
from labkit.tables.ledgers import sent
from labkit.tables.rates import ladder
from labkit.tables.targets import HOST, Target, card_of, ledger_targets
from lessons.ddp_fsdp.tables import memory, throughput

if TYPE_CHECKING:
    from labkit.engine.run import Run

_FOUR_GPUS = "DDP, float32, batch 64, 4 GPUs"
EXPECTED = (Target(_FOUR_GPUS, None, "≥", 415, "samples/s"),)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show: lab, target, measured, goal, unit, met; none without several GPUs."""
    shown = {"strategies": _strategies, "knobs": _knobs, "trial": _trial}
    return card_of(run, "ddp_fsdp", shown, counted=("strategies", "knobs"))


def _strategies(run: Run) -> list[Target]:
    table, gpus = throughput(run), run.plan.gpus
    ddp = table[table["strategy"] == "ddp"]
    targets = [
        Target(
            f"DDP's rate ÷ rate alone, {gpus} GPUs, batch {row.batch}",
            row.efficiency,
            "≥",
            0.95,
            "×",
            row.spread_efficiency,
            depends_on=HOST,
        )
        for row in ddp.itertuples()
    ]
    if gpus == 4:
        targets += [
            Target(_FOUR_GPUS, row.samples_per_s, "≥", 415, "samples/s", row.spread_samples_per_s, depends_on=HOST)
            for row in ddp[ddp["batch"] == 64].itertuples()
        ]
    return targets + ledger_targets(memory(run), sent(run))


def _knobs(run: Run) -> list[Target]:
    table = ladder(run)
    rates, spreads = table["samples_per_s"], table["spread_samples_per_s"]
    best, first = table["times_first"].idxmax(), rates.first_valid_index()
    times = table.loc[best, "times_first"]
    spread = times * (spreads[best] / rates[best] + spreads[first] / rates[first])
    return [Target("fastest setting ÷ first (float32, unfused AdamW)", times, "≥", 4, "×", spread, depends_on=HOST)]


def _trial(run: Run) -> list[Target]:
    table = equality(run)
    return equality_targets(table, f"largest error of {len(table)} strategies beside one process")
