"""What a run of lab 05 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.equality import equality, equality_targets
from labkit.tables.rates import strategies
from labkit.tables.targets import CODE, Target, card_of, ledger_targets
from lessons.sharding.tables import training

if TYPE_CHECKING:
    from labkit.engine.run import Run

_PUBLISHED = 32582  # tokens/s on one GPU, as the report prints
_SCALED = ("ddp", "fsdp_full")


def _efficiency(strategy: str, gpus: int, sequences: int, measured: float | None, spread: float = 0.0) -> Target:
    return Target(f"{strategy} on {gpus} GPUs, {sequences} sequences each", measured, "≥", 0.95, "×", spread)


EXPECTED = tuple(_efficiency(strategy, 4, 48, None) for strategy in _SCALED)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show: lab, target, measured, goal, unit, met; none without a GPU."""
    shown = {"strategies": _strategies, "ladder": _ladder, "batches": _batches, "profiles": _profiles, "trial": _trial}
    return card_of(run, "sharding", shown, least_gpus=1, counted=("strategies", "trial"))


def _ladder(run: Run) -> list[Target]:
    table = training.ladder(run)
    best = table.loc[table["tokens_per_s"].idxmax()]
    times = best["tokens_per_s"] / _PUBLISHED
    spread = best["spread_tokens_per_s"] / _PUBLISHED
    return [
        Target(f"one GPU, tokens/s over the published {_PUBLISHED}", times, "≥", 3, "×", spread),
        Target("MFU there, of the bfloat16 rate", 100 * best["mfu"], unit="%"),
    ]


def _batches(run: Run) -> list[Target]:
    table = training.batches(run).dropna(subset=["peak_mib"])
    worst = 100 * (1 - table["predicted_mib"] / table["peak_mib"]).abs().max()
    return [Target(f"largest unexplained share, one GPU, of {len(table)} peaks", worst, "≤", 10, "%", depends_on=CODE)]


def _strategies(run: Run) -> list[Target]:
    table = strategies(run)
    on_all = table["ranks"] == run.plan.gpus  # fewer ranks are a run on fewer GPUs, which has a target of its own
    rows = table[on_all & (table["load"] == "large") & table["strategy"].isin(_SCALED)]
    targets = [
        _efficiency(row.strategy, row.ranks, row.micro_batch, row.efficiency, row.spread_efficiency)
        for row in rows.itertuples()
    ]
    return targets + ledger_targets(training.memory(run), training.sent(run))


def _profiles(run: Run) -> list[Target]:
    return [
        Target(f"overlap methods apart, {row.strategy}", row.apart_points, "≤", 3, "points")
        for row in training.overlap(run).itertuples()
    ]


def _trial(run: Run) -> list[Target]:
    return equality_targets(equality(run), "largest error of losses and updates")
