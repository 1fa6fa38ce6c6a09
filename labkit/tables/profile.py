"""Rows of the profiler → where a step's time went, and its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_run

if TYPE_CHECKING:
    from labkit.engine.run import Run

PARTS = ["window_ms", "compute_ms", "communication_ms", "hidden_ms", "exposed_ms", "idle_ms"]
KERNELS = ["kernels", "communication_kernels"]
MOMENT = [
    "t_ms",
    "base_mib",
    "activations_mib",
    "gradients_mib",
    "optimizer_mib",
    "temporary_mib",
    "allocated_mib",
    "reserved_mib",
    "phase",
]


def profile(run: Run) -> pd.DataFrame:
    """Return one row per strategy and number of ranks: what a step's time went into, in ms and as shares of it.

    Columns: strategy, ranks, PARTS, KERNELS, compute_share, exposed_share, idle_share and overlap, the hidden share of
    communication (nan without any). All are means over ranks and seeds, so that compute, exposed and idle add up to
    the window; a kernel of NCCL that waits for the other ranks' counts with its waiting. least_communication_ms is that
    of the rank with the least: it waits least. Fact: `idle_shares`, a strategy → the idle share of the GPU that idles
    most.
    """
    rows = run.entries("profile", ["strategy", "ranks", "rank", *PARTS, *KERNELS])
    table = rows.groupby(["strategy", "ranks"], sort=False)[[*PARTS, *KERNELS]].mean().reset_index()
    of_ranks = rows.groupby(["strategy", "ranks", "rank"])["communication_ms"].mean()
    table["least_communication_ms"] = [
        of_ranks[strategy, ranks].min() for strategy, ranks in zip(table["strategy"], table["ranks"], strict=True)
    ]
    for part in ("compute", "exposed", "idle"):
        table[f"{part}_share"] = table[f"{part}_ms"] / table["window_ms"]
    table["overlap"] = (table["hidden_ms"] / table["communication_ms"]).where(table["communication_ms"] > 0)
    return of_run(table, run, idle_shares=_idle_shares(rows))


def _idle_shares(rows: pd.DataFrame) -> dict[str, float]:
    """Return a strategy → how much of its step the GPU that idles most idles: it waits for its own host."""
    by_rank = rows.groupby(["strategy", "ranks", "rank"], sort=False)[["idle_ms", "window_ms"]].mean()
    shares = by_rank["idle_ms"] / by_rank["window_ms"]
    return shares.groupby("strategy", sort=False).max().dropna().to_dict()


def trace_spans(run: Run, strategy: str, **setting: Any) -> pd.DataFrame:
    """Return the spans of a profiled step: rank, span (compute, copy, communicate), collective, start_ms, end_ms.

    Time counts from the first rank's first span. Of several points, the one with most ranks and the first seed. Raises
    ValueError, naming what was traced, where the strategy was not.
    """
    spans = run.spans.reindex(columns=list(dict.fromkeys([*run.spans, "strategy", "ranks", "collective"])))
    timeline = at_setting(spans, setting | {"strategy": strategy})
    if timeline.empty:
        raise ValueError(f"{strategy} was not traced; traced were {sorted(spans['strategy'].dropna().unique())}")
    timeline = timeline[timeline["ranks"] == timeline["ranks"].max()]
    timeline = timeline[timeline["point"] == timeline["point"].min()]
    table = timeline[["rank", "span", "collective"]].reset_index(drop=True)
    zero_us = timeline["start_us"].min()
    for edge in ("start", "end"):
        table[f"{edge}_ms"] = ((timeline[f"{edge}_us"] - zero_us) / 1e3).to_numpy()
    return of_run(table, run, strategy=strategy, ranks=int(timeline["ranks"].iloc[0]))


def at_setting(rows: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    """Return the rows whose knobs have these values."""
    for knob, value in setting.items():
        rows = rows[rows[knob] == value]
    return rows
