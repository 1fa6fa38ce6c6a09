"""Rows of single steps → what an all-reduce costs, its bandwidth, DataParallel beside DDP, and every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import fact, like
from labkit.tables.rows import entries
from labkit.theory.lines import GB
from lessons.scaling.tables.epochs import of_images

if TYPE_CHECKING:
    from labkit.engine.run import Run

BY = ["ranks", "gpu_batch"]
WAYS = ("steps", "trace", "hooks")
_TIMED = ("step", "gradients", "muted", "waited", "alone")


def exchange(run: Run) -> pd.DataFrame:
    """Return per number of ranks and batch per GPU what DDP's all-reduce costs, in ms, by three ways, and alone.

    `steps_ms`: gradients with all-reduce less gradients without. `trace_ms`: kernels of NCCL while nothing computes
    (only on all GPUs; else NaN). `hooks_ms`: what the stream waits from the last gradient to the backward's end. Each
    `…_share` is that over the step; `apart_points` is by how many points these shares differ at most. `alone_ms`: the
    same buckets, all-reduced when nothing else runs; `bus_gb_per_s` is theirs, as nccl-tests defines it. `hidden_share`
    is the part of `alone_ms` that the hooks do not see.
    """
    rows = entries(run, "sent").groupby(BY)[["calls", "sent_bytes"]].max()
    table = rows.astype(int)
    for name in _TIMED:
        own = entries(run, name)
        own = own[own["strategy"] == "ddp"]
        medians = _medians(own, f"{name}_ms")
        table[f"{name}_ms"], table[f"spread_{name}_ms"] = medians["median"], medians["spread"]
    traced = entries(run, "profile").reindex(columns=[*BY, "exposed_ms"]).groupby(BY)["exposed_ms"].mean()
    table["steps_ms"] = table["gradients_ms"] - table["muted_ms"]
    table["spread_steps_ms"] = table["spread_gradients_ms"] + table["spread_muted_ms"]
    table["trace_ms"] = traced.reindex(table.index)
    table["hooks_ms"] = table["waited_ms"]
    for way in WAYS:
        table[f"{way}_share"] = table[f"{way}_ms"] / table["step_ms"]
    shares = table[[f"{way}_share" for way in WAYS]]
    table["apart_points"] = 100 * (shares.max(axis=1) - shares.min(axis=1))
    table = table.reset_index()
    several = table["ranks"] > 1
    moved = 2 * (table["ranks"] - 1) / table["ranks"] * table["sent_bytes"]
    table["bus_gb_per_s"] = (moved / table["alone_ms"] * 1e3 / GB).where(several)
    table["hidden_share"] = (1 - table["hooks_ms"] / table["alone_ms"]).clip(lower=0).where(several)
    return of_images(table, run)


def _medians(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return median and half the interquartile range per setting; an iteration lasts as long as its slowest rank."""
    rows = rows[~rows["warm_up"].astype(bool)]
    slowest = rows.groupby([*BY, "seed", "iteration"])[value].max().groupby(BY)
    spread = (slowest.quantile(0.75) - slowest.quantile(0.25)) / 2
    return pd.DataFrame({"median": slowest.median(), "spread": spread})


def beside_line(table: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """Return `exchange` beside what lab 09's fitted lines promise for the same calls and bytes: line_ms, over_line.

    `lines` is lab 09's table of fits. A line of another number of ranks promises nothing: NaN.
    """
    own = lines[(lines["collective"] == "all-reduce") & (lines["backend"] == "nccl")].set_index("ranks")
    own = own.iloc[:0] if fact(table, "small") else own  # processes on a CPU speak gloo
    alpha_us, beta = (own[name].reindex(table["ranks"]).to_numpy() for name in ("alpha_us", "beta_gb_per_s"))
    moved = 2 * (table["ranks"] - 1) / table["ranks"] * table["sent_bytes"]
    result = table[["ranks", "gpu_batch", "calls", "sent_bytes", "alone_ms", "spread_alone_ms", "bus_gb_per_s"]].copy()
    result["line_ms"] = result["calls"] * alpha_us / 1e3 + moved / beta / GB * 1e3
    result["line_bus_gb_per_s"] = moved / result["line_ms"] * 1e3 / GB
    result["over_line"] = result["alone_ms"] / result["line_ms"]
    return like(result, table, lines)


def data_parallel(run: Run) -> pd.DataFrame:
    """Return per ranks and batch per GPU the step of DataParallel and of DDP in ms, and the first over the second.

    Empty where DataParallel did not run: it needs two GPUs.
    """
    rows = entries(run, "step")
    sides = {name: _medians(rows[rows["strategy"] == name], "step_ms") for name in ("ddp", "dp")}
    table = sides["dp"].add_suffix("_dp").join(sides["ddp"].add_suffix("_ddp"), how="inner").reset_index()
    names = {
        f"{what}_{side}": f"{'spread_' if what == 'spread' else ''}{side}_ms"
        for what in ("median", "spread")
        for side in ("dp", "ddp")
    }
    table = table.rename(columns=names)
    table["times"] = table["dp_ms"] / table["ddp_ms"]
    table["spread_times"] = table["times"] * (
        table["spread_dp_ms"] / table["dp_ms"] + table["spread_ddp_ms"] / table["ddp_ms"]
    )
    return of_images(table, run)


def messages(run: Run) -> pd.DataFrame:
    """Return what rank 0 called in each phase: phase, collective, calls, and the bytes of all of them."""
    rows = entries(run, "message")
    table = rows[rows["rank"] == 0][["phase", "collective", "calls", "sent_bytes"]].reset_index(drop=True)
    return of_images(table.astype({"calls": int, "sent_bytes": int}), run)


def orders(run: Run) -> pd.DataFrame:
    """Return the first images of rank 0's epochs, with and without `set_epoch`: a row per epoch, a column per way."""
    rows = entries(run, "order")
    rows = rows[rows["rank"] == 0].assign(epoch=lambda own: own["epoch"].astype(int))
    rows["numbers"] = [", ".join(map(str, numbers)) for numbers in rows["numbers"]]
    rows["way"] = rows["set_epoch"].astype(bool).map({True: "with set_epoch", False: "without set_epoch"})
    table = rows.pivot_table(index="epoch", columns="way", values="numbers", aggfunc="first").reset_index()
    return of_images(table.rename_axis(columns=None), run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant of a Trial, on rank 0: what it trained on, validated with, and the time that it reports."""
    columns = ["variant", "ranks", "distinct", "repeated", "validated", "rate_over_due"]
    columns += ["first_s", "later_s", "claimed_s"]
    rows = entries(run, "trial").reindex(columns=["rank", *columns])
    return of_images(rows[rows["rank"] == 0][columns].reset_index(drop=True), run)
