"""Rows of timed collectives → bandwidths beside the limit, the line through them, and what the line misses."""

from __future__ import annotations

import math

import pandas as pd

from labkit.labs.collectives.theory.volume import GB, algorithm_gb_per_s, bus_factor, bus_gb_per_s, hops
from labkit.node import limits
from labkit.theory.lines import fit

SETTING = ["backend", "collective", "ranks", "clock", "bytes"]
LINE = ["backend", "collective", "ranks"]
MEASURED = {
    "seconds": "median",
    "low_seconds": "median",
    "high_seconds": "median",
    "first_seconds": "max",
    "message_bytes": "max",
    "repeats": "sum",
    "in_flight": "max",
}


def bandwidths(run) -> pd.DataFrame:
    """Give one row a backend, collective, number of ranks, clock and size: what a call takes, and the bandwidths.

    Columns: SETTING, in_flight, message_bytes (what the ranks really share), median_us and spread_us (half the
    interquartile range) of the slowest rank, count (repetitions), first_us (the point's very first call), status,
    algorithm_gb_per_s and bus_gb_per_s (as nccl-tests defines them), limit, share_of_limit and verdict. The limit is
    what a GPU sends over its links; only an all-reduce may also add in the switch, which allows it more: `above_ring`
    says where it got more than any ring could. gloo, in host memory, has no known limit.
    """
    rows = run.rows
    table = summed(rows[rows["source"] == "ours"] if "source" in rows else rows, SETTING)
    rows = list(table.itertuples())
    table["algorithm_gb_per_s"] = [algorithm_gb_per_s(row.message_bytes, row.median_us / 1e6) for row in rows]
    table["bus_gb_per_s"] = [
        bus_gb_per_s(row.collective, row.ranks, row.message_bytes, row.median_us / 1e6) for row in rows
    ]
    known = limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    table["limit"] = [_limit(known, row) for row in rows]
    table = limits.check(table, "bus_gb_per_s", "limit")
    ring = limits.ring_bus_limit_gb_per_s(known) or math.inf
    table["above_ring"] = (table["backend"] == "nccl") & (table["bus_gb_per_s"] > ring * (1 + limits.RESOLUTION))
    return about(table, run)


def summed(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Give one row a setting: median_us, spread_us, first_us, message_bytes, count, in_flight and its status."""
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, *by, *MEASURED, "status"])])  # where every row failed
    groups = rows.groupby(by, sort=False)
    table = groups.agg(MEASURED | {"status": worst}).reset_index()
    table["median_us"], table["first_us"] = 1e6 * table["seconds"], 1e6 * table["first_seconds"]
    table["spread_us"] = 1e6 * (table["high_seconds"] - table["low_seconds"]) / 2
    columns = ["in_flight", "message_bytes", "median_us", "spread_us", "count", "first_us", "status"]
    return table.rename(columns={"repeats": "count"})[[*by, *columns]]


def fits(run, clock: str = "in flight") -> pd.DataFrame:
    """Give one row a backend, collective and number of ranks: the line t = α + bytes through a link / β.

    Columns: LINE, alpha_us (a call's latency), hops (of a ring) and hop_us (α over them: of NCCL's calls in flight
    mostly the host's, so take "captured"), beta_gb_per_s (a bus bandwidth), knee_bytes (the message whose latency and
    transfer take equally long), residual (the largest relative miss) and points. What was measured at
    fewer than two sizes has no row.
    """
    lines = [_line(*setting, rows) for setting, rows in _lines(run, clock)]
    columns = [*LINE, "alpha_us", "hops", "hop_us", "beta_gb_per_s", "knee_bytes", "residual", "points"]
    return about(pd.DataFrame(lines, columns=columns), run)


def residuals(run, clock: str = "in flight") -> pd.DataFrame:
    """Give `bandwidths`' rows that have a line, with it: alpha_us, beta_gb_per_s, knee_bytes, fitted_us, residual.

    residual is the line over the measured, less 1; region is "latency" below the knee and "bandwidth" above.
    """
    table = bandwidths(run)
    table = table[(table["clock"] == clock) & (table["status"] == "ok")]
    line = fits(run, clock)[[*LINE, "alpha_us", "beta_gb_per_s", "knee_bytes"]]
    table = table.merge(line, on=LINE, how="inner")
    moved = [bus_factor(row.collective, row.ranks) * row.message_bytes for row in table.itertuples()]
    table["fitted_us"] = table["alpha_us"] + pd.Series(moved, dtype=float) / GB / table["beta_gb_per_s"] * 1e6
    table["residual"] = table["fitted_us"] / table["median_us"] - 1
    table["region"] = (table["message_bytes"] < table["knee_bytes"]).map({True: "latency", False: "bandwidth"})
    return about(table, run)


def about(table: pd.DataFrame, run, **more) -> pd.DataFrame:
    """Give the table with where it comes from."""
    table.attrs = {"source": run.source, "small": run.plan.size == "small", "ranks": run.plan.gpus} | more
    return table


def _lines(run, clock: str):
    table = bandwidths(run)
    table = table[(table["clock"] == clock) & (table["status"] == "ok")]
    return [(setting, rows) for setting, rows in table.groupby(LINE, sort=False) if len(rows) > 1]


def _line(backend: str, collective: str, ranks: int, rows: pd.DataFrame) -> tuple:
    share, steps = bus_factor(collective, ranks), hops(collective, ranks)
    line = fit([share * size for size in rows["message_bytes"]], [us / 1e6 for us in rows["median_us"]])
    alpha_us = 1e6 * line.alpha_s
    return (
        backend,
        collective,
        ranks,
        alpha_us,
        steps,
        alpha_us / steps,
        line.beta_gb_per_s,
        line.knee_bytes / share,
        line.residual,
        len(rows),
    )


def _limit(known: limits.Spec | None, row) -> float | None:
    if row.backend != "nccl":
        return None
    return limits.bus_bandwidth_limit(known, row.ranks, "any" if row.collective == "all-reduce" else "ring")


def worst(said: pd.Series) -> str:
    return next((status for status in said if status != "ok"), "ok")
