"""Rows of lab 02 → tables: what each method took, what physics allows, what pinning and what the path did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.node.limits import Spec, against_limit, spec
from labkit.provenance import fact, made_from, of_run, of_source, sources
from labkit.tables.published import H100, published, report_names
from labkit.theory import intervals
from labkit.theory.sizes import GIB
from lessons.broadcast.plan import CHUNKED, METHODS, SHARED, WHOLE, Sweep
from lessons.broadcast.theory import NAMES, least_seconds

if TYPE_CHECKING:
    from labkit.engine.run import Run

TEMPLATE_BYTES = 4 * 100_000 * 10_000  # of the tensor in the course's public template, in float32
REPORTED = {"broadcast1": "direct", "broadcast2": "staged", "broadcast3": "pipelined"}
_SETTING = ["method", "memory", "chunks"]


def least_times(plan: Sweep, gpu_name: str | None) -> pd.DataFrame:
    """Return the least time of each method by datasheet: method, chunks, least_seconds (NaN for an unknown GPU)."""
    host, nvlink = (1e9 * (rate or math.nan) for rate in _rates(spec(gpu_name)))
    settings = [(m, c) for m in METHODS for c in ((1,) if m in WHOLE else plan.chunks)]
    rows = [(m, c, least_seconds(m, plan.elements * 4, plan.gpus, c, host, nvlink)) for m, c in settings]
    return pd.DataFrame(rows, columns=["method", "chunks", "least_seconds"])


def _rates(limits: Spec | None) -> tuple[float | None, float | None]:
    """Return GB/s of a GPU's own host link and of its NVLinks together."""
    return (limits.pcie_gb_per_s, limits.nvlink_gb_per_s) if limits else (None, None)


def least_times_table(plan: Sweep, gpu_name: str) -> pd.DataFrame:
    """Return a row per method: its least time in ms, and which part of it is the host's and the NVLinks'."""
    table = least_times(plan, gpu_name).sort_values("chunks").drop_duplicates("method", keep="last")
    host, _ = _rates(spec(gpu_name))
    pulls = [plan.gpus if method in SHARED else 1 for method in table["method"]]
    copying = [1e3 * plan.elements * 4 / (1e9 * (host or math.nan)) / count for count in pulls]
    rows = table.assign(least_ms=1e3 * table["least_seconds"], host_ms=copying)
    rows["after_ms"] = rows["least_ms"] - rows["host_ms"]
    rows = rows.set_index("method").loc[list(METHODS)].reset_index().replace({"method": NAMES})
    return rows[["method", "chunks", "host_ms", "after_ms", "least_ms"]].round(1)


def methods(run: Run) -> pd.DataFrame:
    """Return one row per setting: method, memory, chunks, seconds (median), spread_seconds, count, status.

    Then least_seconds, and verdict against the datasheet.
    """
    table = run.medians(_SETTING, "seconds")
    gpu = run.node.gpus[0].name if run.plan.device == "cuda" else None
    table = table.merge(least_times(run.plan, gpu), on=["method", "chunks"], how="left")
    table = against_limit(table, "seconds", "least_seconds", kind="time").drop(columns=["limit", "share_of_limit"])
    return of_run(table, run, bytes=run.plan.elements * 4)


def best(table: pd.DataFrame, *, links: bool = False) -> pd.DataFrame:
    """Return the fastest chunk count of each method and memory: one row per pair; `links` only where that is asked."""
    right = table[(table["status"] == "ok") & (links | (table["method"] != "links"))]
    fastest = right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()
    return made_from(right.loc[fastest].reset_index(drop=True), table)


def ablation(table: pd.DataFrame) -> pd.DataFrame:
    """Return, per method, its seconds from pageable and from pinned memory and what pinning gained (a factor).

    `path_gain` is what the method's path gained over direct, both pinned. Without pinned memory that is NaN.
    """
    wide = best(table).pivot_table(index="method", columns="memory", values="seconds", sort=False)
    wide = wide.reindex([m for m in METHODS if m in wide.index]).reindex(columns=["pageable", "pinned"])
    result = pd.DataFrame(
        {
            "pageable_seconds": wide["pageable"],
            "pinned_seconds": wide["pinned"],
            "pinning_gain": wide["pageable"] / wide["pinned"],
            "path_gain": wide["pinned"].get("direct", float("nan")) / wide["pinned"],
        }
    ).reset_index()
    return made_from(result, table)


def chunk_sweep(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the chunked methods, with above_best: seconds above the best count's, as a share of them.

    From pinned memory, or from pageable where nothing is pinned.
    """
    memory = "pinned" if (table["memory"] == "pinned").any() else "pageable"
    chosen = table["method"].isin(CHUNKED) & (table["memory"] == memory) & table["seconds"].notna()
    rows = table[chosen].reset_index(drop=True)
    fastest = rows.groupby("method")["seconds"].transform("min")
    return made_from(rows.assign(above_best=rows["seconds"] / fastest - 1), table)


def timeline(run: Run, method: str, chunks: int | None = None, memory: str | None = None) -> pd.DataFrame:
    """Return the copies of one method as spans: lane, kind ("host" or "peer"), start_ms and end_ms.

    Times count from its first copy; the fact `hidden` is the `overlap`. Without `chunks` the smallest count that was
    run, whose pieces are widest; without `memory` pinned where there is.
    """
    spans = run.spans[run.spans["method"] == method]
    memory = memory or ("pinned" if (spans["memory"] == "pinned").any() else "pageable")
    spans = spans[(spans["memory"] == memory) & (spans["chunks"] == (chunks or spans["chunks"].min()))]
    table = pd.DataFrame(
        {
            "lane": spans["lane"],
            "kind": ["host" if lane.startswith("host") else "peer" for lane in spans["lane"]],
            "start_ms": spans["start_us"] / 1e3,
            "end_ms": spans["end_us"] / 1e3,
        }
    ).reset_index(drop=True)
    pieces = spans["chunks"].iloc[0]
    setting = f"{memory} source, {f'{pieces} chunks' if pieces > 1 else 'in one piece'}"
    return of_run(table, run, setting=setting, method=method, hidden=overlap(table))


def overlap(spans: pd.DataFrame) -> float:
    """Return the share of the time with some GPU → GPU copy in which a host → GPU copy ran as well; 0 to 1."""
    kinds = (spans[spans["kind"] == kind] for kind in ("host", "peer"))
    host, peer = (list(zip(rows["start_ms"], rows["end_ms"], strict=True)) for rows in kinds)
    forwarding = intervals.length(peer)
    return intervals.length(intervals.shared(host, peer)) / forwarding if forwarding else float("nan")


def ladder(printed: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Return what the reports' seconds mean if the tensor holds as much as the recorded one.

    Columns: report, method, seconds; copies (how many copies of the tensor one host link, or one thread, makes one
    after another: direct makes one per GPU, staged and pipelined make one), copy_gb_per_s (that many copies divided by
    the seconds), and nearest_memory: which recorded rate of one copy is nearer, as a factor, pageable or pinned. Facts:
    `pageable` and `pinned`, these rates, of the pipelined broadcast, whose forwards hide behind its one copy.
    """
    size, gpus = fact(recorded, "bytes"), fact(recorded, "ranks")
    fastest = best(recorded)
    one_copy = fastest[fastest["method"] == "pipelined"].set_index("memory")["seconds"]
    pageable, pinned = size / one_copy["pageable"] / 1e9, size / one_copy["pinned"] / 1e9
    rows = printed.assign(method=printed["method"].map(REPORTED), report=printed["report"].map(report_names()))
    rows["copies"] = rows["method"].map({"direct": gpus, "staged": 1, "pipelined": 1})
    rows["copy_gb_per_s"] = rows["copies"] * size / rows["seconds"] / 1e9
    middle = (pageable * pinned) ** 0.5
    rows["nearest_memory"] = ["pinned" if rate > middle else "pageable" for rate in rows["copy_gb_per_s"]]
    return of_source(rows.drop(columns=["node"]), sources(printed, recorded), pageable=pageable, pinned=pinned)


def fitting_sizes(recorded: pd.DataFrame) -> pd.DataFrame:
    """Return between which sizes of the tensor each report's three times keep their nearest memory.

    Columns: report, least_gib, most_gib. The host link of an H100 bounds a size, too: `broadcast3` brings the whole
    tensor through one.
    """
    table = ladder(published("broadcast"), recorded)
    middle = (fact(table, "pageable") * fact(table, "pinned")) ** 0.5
    limits = []
    for report, rows in table.groupby("report", sort=False):
        sizes = fact(recorded, "bytes") / GIB * middle / rows["copy_gb_per_s"]  # the rate grows with the assumed size
        pinned = rows["nearest_memory"] == "pinned"
        through_link = 1e9 * (H100.pcie_gb_per_s or math.inf) * rows["seconds"].min() / GIB
        limits.append((report, sizes[pinned].max(), min(sizes[~pinned].min(), through_link)))
    return made_from(pd.DataFrame(limits, columns=["report", "least_gib", "most_gib"]), table)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per function: ms, own_clock_ms, wrong_repeats, repeats, source_changed.

    `ms` is the median of the synchronised clock, `own_clock_ms` that of a clock which the function stops itself (NaN
    where it has none). `wrong_repeats` of `repeats` left a wrong copy on some GPU; `source_changed` says whether the
    function left another source tensor than it found.
    """
    rows = run.rows[~run.rows["warm_up"].astype(bool)]
    claimed = rows["claimed_seconds"] if "claimed_seconds" in rows else pd.Series(float("nan"), index=rows.index)
    times = {"ms": 1e3 * rows["seconds"], "own_clock_ms": 1e3 * claimed}
    grouped = rows.assign(**times, wrong=rows["status"] != "ok").groupby("function", sort=False)
    table = grouped.agg(
        ms=("ms", "median"),
        own_clock_ms=("own_clock_ms", "median"),
        wrong_repeats=("wrong", "sum"),
        repeats=("wrong", "count"),
        source_changed=("source_changed", "any"),
    ).reset_index()
    return of_run(table, run)
