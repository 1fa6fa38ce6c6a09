"""What matters of lab 08: the rates of two kernels on the card; errors, memory and times against torch's kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.measures import Measured, figure, ratio
from lessons.attention.plan import Race
from lessons.attention.tables import speed
from lessons.attention.theory import flops

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SEQUENCE, _LONGEST = 16384, 65536


def card_plans() -> list[Race]:
    """Return what `make card` launches; without a GPU nothing, because Triton's interpreter says nothing of speed."""
    return (
        [Race.full(implementations=("flash", "sdpa_cudnn"), sequences=(_SEQUENCE,), captured=0)]
        if Race.on_gpus()
        else []
    )


def launched(run: Run, implementation: str, head_dim: int, sequence: int = _SEQUENCE) -> Measured | None:
    """Return forward and backward in ms as autograd calls them.

    The goals are the best that was measured of anybody on an H200: see the lesson's section on a kernel for one
    generation.
    """
    rows = run.rows
    wanted: dict[str, Any] = {
        "implementation": implementation,
        "head_dim": head_dim,
        "sequence": sequence,
        "precision": "bfloat16",
    }
    wanted |= {"clock": "launched", "phase": "both", "status": "ok"}
    rows = rows[(rows[[*wanted]] == pd.Series(wanted)).all(axis=1)]
    if rows.empty:
        return None
    row = rows.iloc[-1]
    setting = f"{_shape(sequence, head_dim)}, {int(row['heads'])} heads, causal, bfloat16"
    return Measured(row["ms"], row["low_ms"], row["high_ms"], int(row["repeats"]), setting)


def tflops(run: Run, implementation: str, head_dim: int) -> Measured | None:
    """Return a kernel's rate."""
    plan, limits, times = run.plan, run.datasheet, launched(run, implementation, head_dim)
    work = flops("both", _SEQUENCE, _SEQUENCE, head_dim, causal=plan.causal, heads=plan.heads)
    return times and times.rate(work / 1e9, limits and limits.bf16_tflops)


def over_rival(run: Run, clock: str) -> Measured | None:
    """Return our time over that of torch's kernel, where it is the longest: of the kernels for Hopper, where raced."""
    table = speed.race(run)
    ours = table[table["implementation"].isin(["flash", "hopper"]) & (table["clock"] == clock)]
    setting = ["precision", "head_dim", "sequence", "phase"]
    ours = ours.sort_values("implementation").drop_duplicates(setting, keep="last").dropna(subset=["versus"])
    if ours.empty:
        return None
    worst = ours.loc[ours["versus"].idxmax()]
    cell = ["clock", *setting]
    same = (table[cell] == worst[cell]).all(axis=1) & (table["implementation"] == speed.rival_of(run.plan))
    return ratio(_figure(worst), _figure(table[same].iloc[0]))


def _figure(row: pd.Series) -> Measured:
    """Return a row's time; the captured backward has no quartiles."""
    low, high = (row["ms"] if pd.isna(row[name]) else row[name] for name in ("low_ms", "high_ms"))
    return Measured(row["ms"], low, high, 1, "")


def phases_at_the_longest(run: Run) -> Measured | None:
    if _LONGEST not in run.plan.sequences:
        return None
    table = speed.race(run).query("implementation == 'flash' and clock == 'launched'")
    return figure(run, table[table["sequence"] == _LONGEST]["ms"].notna().sum())


def _shape(sequence: int, head_dim: int) -> str:
    return f"N {sequence:_}, d {head_dim}".replace("_", " ")
