"""Rows of timed collectives, and a report's times → bandwidths and their limits, lines through them, symptoms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.node import limits
from labkit.provenance import made_from, of_run
from labkit.tables.rates import statuses
from labkit.theory.alpha_beta import fit
from labkit.theory.sizes import GB, MIB
from lessons.collectives import theory as ring
from lessons.collectives.theory import algorithm_gb_per_s, bus_factor, bus_gb_per_s

if TYPE_CHECKING:
    from labkit.engine.run import Run

LARGE_BYTES = 64 * MIB  # from here on ours are compared with nccl-tests
_LINE = ["backend", "collective", "ranks"]
_SETTING = [*_LINE, "clock", "bytes"]
_FITTED = ["alpha_us", "beta_gb_per_s", "knee_bytes"]
_MEASURED = {
    "seconds": "median",
    "low_seconds": "median",
    "high_seconds": "median",
    "first_seconds": "max",
    "message_bytes": "max",
    "repeats": "sum",
    "in_flight": "max",
}


def bandwidths(run: Run) -> pd.DataFrame:
    """Return one row per backend, collective, number of ranks, clock and size: its time, bandwidths and fitted line.

    Columns: SETTING, in_flight, message_bytes (what the ranks really share), median_us and spread_us (half the
    interquartile range) of the slowest rank, count (repetitions), first_us (the point's very first call), status,
    algorithm_gb_per_s and bus_gb_per_s (as nccl-tests defines them), limit, share_of_limit and verdict. The limit is
    what a GPU sends over its links; only an all-reduce may also add in the switch, which allows it more: `above_ring`
    says where it got more than any ring could. gloo, in host memory, has no known limit. Then the columns of `fits`,
    fitted_us, and residual: the line over the measured, less 1.
    """
    table = _timed(run).merge(_fits(_timed(run)), on=[*_LINE, "clock"], how="left")
    moved = table["message_bytes"] * [
        bus_factor(*call) for call in zip(table["collective"], table["ranks"], strict=True)
    ]
    table["fitted_us"] = table["alpha_us"] + moved / GB / table["beta_gb_per_s"] * 1e6
    table["residual"] = table["fitted_us"] / table["median_us"] - 1
    return of_run(table, run)


def _timed(run: Run) -> pd.DataFrame:
    rows = run.rows
    table = _summed(rows[rows["source"] == "ours"] if "source" in rows else rows, _SETTING)
    settings = list(table.itertuples())
    table["algorithm_gb_per_s"] = [algorithm_gb_per_s(row.message_bytes, row.median_us / 1e6) for row in settings]
    table["bus_gb_per_s"] = [
        bus_gb_per_s(row.collective, row.ranks, row.message_bytes, row.median_us / 1e6) for row in settings
    ]
    gpu = run.datasheet
    table["limit"] = [_limit(gpu, row) for row in settings]
    table = limits.against_limit(table, "bus_gb_per_s", "limit")
    ring_limit = limits.ring_bus_limit_gb_per_s(gpu) or math.inf
    above = table["bus_gb_per_s"] > ring_limit * (1 + limits.RESOLUTION)
    return table.assign(above_ring=(table["backend"] == "nccl") & above)


def _summed(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return one row per setting: median_us, spread_us, first_us, message_bytes, count, in_flight and its status."""
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, *by, *_MEASURED, "status"])])  # where every row failed
    table = rows.groupby(by, sort=False).agg(_MEASURED).join(statuses(rows, by)).reset_index()
    table["median_us"], table["first_us"] = 1e6 * table["seconds"], 1e6 * table["first_seconds"]
    table["spread_us"] = 1e6 * (table["high_seconds"] - table["low_seconds"]) / 2
    columns = ["in_flight", "message_bytes", "median_us", "spread_us", "count", "first_us", "status"]
    return table.rename(columns={"repeats": "count"})[[*by, *columns]]


def fits(run: Run) -> pd.DataFrame:
    """Return one row per backend, collective and number of ranks: the line t = α + bytes through a link / β.

    The times are those of calls in flight. Columns: LINE, alpha_us (a call's latency), beta_gb_per_s (a bus bandwidth),
    knee_bytes (the message whose latency and transfer take equally long). What was measured at fewer than two sizes has
    no row.
    """
    lines = _fits(_timed(run))
    return of_run(lines[lines["clock"] == "in flight"].drop(columns="clock").reset_index(drop=True), run)


def _fits(table: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of every clock through times in median_us."""
    lines = []
    for setting, rows in table[table["status"] == "ok"].groupby([*_LINE, "clock"], sort=False):
        if len(rows) > 1:
            _, collective, ranks, _ = setting
            share = bus_factor(collective, ranks)
            line = fit([share * size for size in rows["message_bytes"]], [us / 1e6 for us in rows["median_us"]])
            alpha_us, knee = 1e6 * line.alpha_s, line.knee_bytes / share
            lines.append((*setting, alpha_us, line.beta_gb_per_s, knee))
    return pd.DataFrame(lines, columns=[*_LINE, "clock", *_FITTED])


def published_times(all_reduce: pd.DataFrame) -> pd.DataFrame:
    """Return all_reduce.csv with bus_gb_per_s, and for NCCL the limit of a V100's NVLinks, the share and a verdict.

    least_ms is the time that the bytes need at that limit. "suspiciously low" is less than a tenth of the limit.
    """
    limit = limits.ring_bus_limit_gb_per_s(limits.spec("Tesla V100-SXM2-32GB"))  # of all V100s the ones with NVLink
    moved = [bus_factor("all-reduce", row.processes) * 1e6 * row.megabytes for row in all_reduce.itertuples()]
    moved = pd.Series(moved, index=all_reduce.index)
    table = all_reduce.assign(bus_gb_per_s=moved / GB / all_reduce["seconds"])
    table["limit"] = [limit if backend == "nccl" else math.nan for backend in table["backend"]]
    table["least_ms"] = 1e3 * limits.least_seconds_to_move(moved, table["limit"])
    table = limits.against_limit(table, "bus_gb_per_s", "limit", low=0.1).reset_index(drop=True)
    return made_from(table, all_reduce, small=False)


def _limit(gpu: limits.Spec | None, row) -> float | None:
    if row.backend != "nccl":
        return None
    return limits.bus_bandwidth_limit(gpu, row.ranks, row.collective)


LATE = 0.1  # of what the clock showed, or claimed: more is a fault


_KEYS = ["collective", "ranks", "bytes"]
_RATES = ["claimed_gb_per_s", "bus_gb_per_s"]
_WRONG = ["wrong_ranks", "wrong_share"]
_SHOWN = ["variant", "collective", "ranks", "message_bytes", "seconds", "late_seconds", *_RATES, *_WRONG]


def against(run: Run) -> pd.DataFrame:
    """Return one row per collective and size: our bus bandwidth, nccl-tests', and ours over theirs.

    Both lie alike (`placement`). ratio is NaN, and status and said tell why, where there is nothing of theirs. Facts:
    installed (whether any program was found) and version.
    """
    our_rows = _of(run, "ours")
    our_times = bandwidths(run).drop(columns=["limit", "share_of_limit", "verdict"])
    our_times = our_times[our_times["median_us"].notna()].merge(
        our_rows[[*_KEYS, "placement"]].drop_duplicates(), on=_KEYS
    )
    nccl_tests_rows = _of(run, "nccl-tests").reindex(
        columns=[*_KEYS, "placement", "seconds", "bus_gb_per_s", "status", "said"]
    )
    timed, places = nccl_tests_rows[nccl_tests_rows["seconds"].notna()], [*_KEYS, "placement"]
    nccl_tests_times = timed.groupby(places, sort=False)[["bus_gb_per_s"]].median().join(statuses(timed, places))
    table = our_times.merge(
        nccl_tests_times.reset_index(),
        on=places,
        how="left",
        suffixes=("_ours", "_theirs"),
    )
    table = table.rename(columns={"bus_gb_per_s_ours": "ours_gb_per_s", "bus_gb_per_s_theirs": "theirs_gb_per_s"})
    untimed = nccl_tests_rows[nccl_tests_rows["seconds"].isna()].drop_duplicates("collective")
    failed = untimed.set_index("collective")[["status", "said"]].to_dict("index")
    table["status"] = [_status(row, failed.get(row.collective, {})) for row in table.itertuples()]
    table["said"] = [failed.get(name, {}).get("said", "") for name in table["collective"]]
    table["ratio"] = (table["ours_gb_per_s"] / table["theirs_gb_per_s"]).where(table["status"] == "ok")
    table["spread_share"] = table["spread_us"] / table["median_us"]
    columns = [*_KEYS, "placement", "ours_gb_per_s", "theirs_gb_per_s", "ratio", "spread_share", "status", "said"]
    versions = _of(run, "nccl-tests").reindex(columns=["version"])["version"].dropna()
    installed = bool((nccl_tests_rows["status"] != "not installed").any())
    return of_run(table[columns], run, installed=installed, version=versions.iloc[0] if len(versions) else "")


def rings(run: Run) -> pd.DataFrame:
    """Return one row per number of ranks and length: our ring and the library's all-reduce, in µs, and bytes sent.

    times is ours over the library's; formula_bytes is what rank 0 sends of chunks of these lengths.
    """
    keys = ["ranks", "elements"]
    table = _summed(run.rows, [*keys, "method"])
    ring_rows, library_rows = (table[table["method"] == name].set_index(keys) for name in ("ours", "library"))
    compared = pd.DataFrame(
        {
            "ours_us": ring_rows["median_us"],
            "spread_ours_us": ring_rows["spread_us"],
            "library_us": library_rows["median_us"],
            "spread_library_us": library_rows["spread_us"],
            "times": ring_rows["median_us"] / library_rows["median_us"],
            "status": ring_rows["status"].where(ring_rows["status"] != "ok", library_rows["status"]),
        }
    ).reset_index()
    counted = run.rows[run.rows["method"] == "ours"].groupby(keys)["sent_bytes"].max()
    compared["bytes"] = 4 * compared["elements"]
    compared["sent_bytes"] = counted.reindex(pd.MultiIndex.from_frame(compared[keys])).to_numpy()
    compared["formula_bytes"] = [4 * ring.sent_elements(0, row.elements, row.ranks) for row in compared.itertuples()]
    return of_run(compared, run)


def ring_lines(run: Run) -> pd.DataFrame:
    """Return one row per method and length of a Ring, with the most ranks: its time, and the line of its method.

    Columns: ranks, method, backend, bytes, elements, median_us, spread_us, count, status, alpha_us, beta_gb_per_s.
    """
    table = _summed(run.rows, ["backend", "ranks", "method", "elements"])
    table = table[table["ranks"] == table["ranks"].max()].assign(collective="all-reduce", clock="one call")
    lines = [_fits(rows).assign(method=method) for method, rows in table.groupby("method", sort=False)]
    fitted = pd.concat(lines)[["method", "alpha_us", "beta_gb_per_s"]]
    return of_run(table.assign(bytes=4 * table["elements"]).merge(fitted, on="method", how="left"), run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant of a Trial: what its benchmark shows, and what is so (SHOWN)."""
    rows = run.rows_with(_SHOWN)
    return of_run(rows[rows["rank"] == 0][_SHOWN].reset_index(drop=True), run)


def _status(row, failed: dict) -> str:
    if row.status_ours != "ok":
        return f"ours: {row.status_ours}"
    return failed.get("status", "not printed") if pd.isna(row.status_theirs) else row.status_theirs


def _of(run: Run, source: str) -> pd.DataFrame:
    return run.rows[run.rows["source"] == source]
