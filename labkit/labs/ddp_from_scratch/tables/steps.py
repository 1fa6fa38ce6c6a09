"""Rows of timed steps → each strategy's step and its parts, beside the step that sends nothing and torch's DDP."""

from __future__ import annotations

import pandas as pd

SETTING = ["strategy", "bucket_mb"]
ALIKE = 0.05  # peaks of memory that differ by no more are one peak
PARTS = ["forward_ms", "backward_ms", "waited_ms", "optimizer_ms"]


def implementations(run) -> pd.DataFrame:
    """Give one row a setting: its step, the parts of it, what sending adds, its memory, and how far it is from DDP.

    Columns: strategy, bucket_mb, step_ms (median over rounds, the slowest rank's), spread_step_ms, count, status; PARTS
    (medians over ranks and rounds: `waited_ms` goes from the last gradient until all are averaged); `exposed_ms`, the
    step over the one that sends nothing, its spread, and as a share of the step; `hidden_share`, the part of naive's
    exposed time that is not exposed here; peak_mib (the fullest rank's; NaN on a CPU, and
    where ranks and rounds differ by more than ALIKE: it is no property of the strategy then) and `extra_mib`, over that
    of "none"; `over_ddp`, the step over DDP's, its spread, and whether the two are resolved. What a run has no base for
    is NaN.
    """
    table = run.medians(SETTING, "step_ms")
    rows = timed(run)
    parts = rows.groupby(SETTING, sort=False)[PARTS].median()
    peaks = rows.reindex(columns=[*SETTING, "peak_mib"]).groupby(SETTING, sort=False)["peak_mib"]
    parts["peak_mib"] = peaks.max().where(peaks.max() <= (1 + ALIKE) * peaks.min())
    table = table.merge(parts.reset_index(), on=SETTING, how="left")
    none, naive, ddp = (base(table, name) for name in ("none", "naive", "ddp"))
    table["exposed_ms"] = table["step_ms"] - none["step_ms"]
    table["spread_exposed_ms"] = table["spread_step_ms"] + none["spread_step_ms"]
    table["exposed_share"] = table["exposed_ms"] / table["step_ms"]
    table["hidden_share"] = 1 - table["exposed_ms"] / (naive["step_ms"] - none["step_ms"])
    table.loc[table["strategy"] == "none", "hidden_share"] = float("nan")
    table["extra_mib"] = table["peak_mib"] - none["peak_mib"]
    table["over_ddp"] = table["step_ms"] / ddp["step_ms"]
    table["spread_over_ddp"] = (table["spread_step_ms"] + ddp["spread_step_ms"] * table["over_ddp"]) / ddp["step_ms"]
    table["resolved"] = (table["over_ddp"] - 1).abs() > table["spread_over_ddp"]
    return about(table, run)


def timed(run) -> pd.DataFrame:
    """Give the rows of steps that count."""
    needed = ["entry", "warm_up", *SETTING, *PARTS]
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, *needed])])
    return rows[(rows["entry"] == "step") & ~rows["warm_up"].astype(bool)]


def base(table: pd.DataFrame, strategy: str) -> pd.Series:
    """Give the row of a strategy to hold others against; all NaN where the run has none."""
    found = table[table["strategy"] == strategy]
    return found.iloc[0] if len(found) else pd.Series(float("nan"), index=table.columns)


def about(table: pd.DataFrame, run, **more) -> pd.DataFrame:
    """Have the table tell its run's source, whether it is small, and on how many ranks it ran."""
    table.attrs = {"source": run.source, "small": run.plan.size == "small", "ranks": run.plan.gpus, **more}
    return table
