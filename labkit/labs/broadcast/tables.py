"""Rows of lab 02 → tables: what each method took, what physics allows, what pinning and what the path did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.labs.broadcast.plan import CHUNKED, METHODS, WHOLE, Sweep
from labkit.node.limits import against_limit, spec
from labkit.provenance import fact, like, of_run, of_source, sources
from labkit.tables.targets import Target, card_of
from labkit.theory import intervals

if TYPE_CHECKING:
    from labkit.engine.run import Run

_REPORTED = {"broadcast1": "direct", "broadcast2": "staged", "broadcast3": "pipelined"}
_SETTING = ["method", "memory", "chunks"]


def theory(plan: Sweep, gpu_name: str | None) -> pd.DataFrame:
    """Return the least time of each method by datasheet: method, chunks, limit_seconds (NaN for an unknown GPU).

    With s bytes, N GPUs, h bytes/s through one host link and v through one GPU's NVLinks:
    links s/(N·h); direct s/h, every link at once; staged and nccl s/h + s·(N−1)/v, the sender's NVLinks being shared
    (nccl passes the tensor on in a ring: s/h + s/v); pipelined s/h and only the last chunk's forward after it;
    scatter + all-gather s/(N·h) and the last chunk's.
    """
    known = spec(gpu_name)
    host = known.pcie_gb_per_s * 1e9 if known and known.pcie_gb_per_s else float("nan")
    nvlink = known.nvlink_gb_per_s * 1e9 if known and known.nvlink_gb_per_s else float("nan")
    size, gpus = plan.elements * 4, plan.gpus
    forward = size * (gpus - 1) / nvlink  # one GPU hands the whole tensor to each of the others

    def least(method: str, chunks: int) -> float:
        return {
            "links": size / (gpus * host),
            "direct": size / host,
            "staged": size / host + forward,
            "nccl": size / host + size / nvlink,
            "pipelined": size / host + forward / chunks,
            "scatter_all_gather": size / (gpus * host) + forward / (gpus * chunks),
        }[method]

    settings = [(m, c) for m in METHODS for c in ((1,) if m in WHOLE else plan.chunks)]
    return pd.DataFrame([(m, c, least(m, c)) for m, c in settings], columns=["method", "chunks", "limit_seconds"])


def methods(run: Run) -> pd.DataFrame:
    """Return one row per setting: method, memory, chunks, seconds (median), spread_seconds, count, status, gb_per_s,
    share_of_links, then share_of_limit and verdict against the datasheet.

    `gb_per_s` is what each GPU receives; `share_of_links` compares with the same memory's fastest `links` row: 1.0
    means that the broadcast took no longer than the host links need to bring the tensor in once, all together.
    """
    table = run.medians(_SETTING, "seconds")
    table["gb_per_s"] = run.plan.elements * 4 / table["seconds"] / 1e9
    links = table[table["method"] == "links"].groupby("memory")["seconds"].min()
    table["share_of_links"] = table["memory"].map(links) / table["seconds"]
    gpu = run.node.gpus[0].name if run.plan.device == "cuda" else None
    table = table.merge(theory(run.plan, gpu), on=["method", "chunks"], how="left")
    table = against_limit(table, "seconds", "limit_seconds", kind="time").drop(columns=["limit"])
    return of_run(table, run, bytes=run.plan.elements * 4)


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest chunk count of each method and memory: one row per pair, `links` left out."""
    right = table[(table["status"] == "ok") & (table["method"] != "links")]
    fastest = right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()
    return like(right.loc[fastest].reset_index(drop=True), table)


def ablation(table: pd.DataFrame) -> pd.DataFrame:
    """Return, per method, its seconds from pageable and from pinned memory and what pinning gained (a factor).

    `path_gain` is what the method's path gained over direct, both pinned: the two causes apart.
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
    return like(result, table)


def chunk_sweep(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the chunked methods, where the number of chunks was turned."""
    return like(table[table["method"].isin(CHUNKED)].reset_index(drop=True), table)


def timeline(run: Run, method: str, chunks: int | None = None, memory: str | None = None) -> pd.DataFrame:
    """Return the copies of one method as spans: lane, kind ("host" or "peer"), start_ms and end_ms.

    Times count from its first copy. Without `chunks` the smallest count that was run, whose pieces are widest;
    without `memory` pinned where there is.
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
    return of_run(table, run, setting=setting, method=method)


def overlap(spans: pd.DataFrame) -> float:
    """Return the share of the forwarding time (some peer lane busy) during which a host lane was busy too; 0 to 1."""
    kinds = (spans[spans["kind"] == kind] for kind in ("host", "peer"))
    host, peer = (list(zip(rows["start_ms"], rows["end_ms"], strict=True)) for rows in kinds)
    forwarding = intervals.length(peer)
    return intervals.length(intervals.shared(host, peer)) / forwarding if forwarding else float("nan")


def compare(
    measured: pd.DataFrame | None, recorded: pd.DataFrame, published: pd.DataFrame, predicted: Any = None
) -> pd.DataFrame:
    """Return predicted, theory, measured, recorded and published seconds of each method: method, origin, seconds.

    Of our runs the fastest setting of each method, from any memory. Theory is the recorded node's: the reports'
    machines had like links. A measured run of another size than the recorded one is left out: its seconds would say
    nothing beside the others.
    """
    if measured is not None and fact(measured, "bytes") != fact(recorded, "bytes"):
        measured = None
    fastest = _fastest(recorded)
    parts = [] if measured is None else [_fastest(measured).assign(origin="measured")]
    parts.append(fastest.assign(origin="recorded"))
    parts.append(fastest.assign(seconds=fastest["limit_seconds"], origin="theory"))
    parts.append(published.assign(method=published["method"].map(_REPORTED), origin="published"))
    if (guess := getattr(predicted, "value", predicted)) is not None:
        parts.append(pd.DataFrame([{"method": "scatter_all_gather", "seconds": guess, "origin": "predicted"}]))
    columns = ["method", "origin", "seconds"]
    table = pd.concat([part[columns] for part in parts], ignore_index=True)
    return of_source(table, sources(measured, recorded, published))


def _fastest(table: pd.DataFrame) -> pd.DataFrame:
    """Return each method's fastest setting, from any memory."""
    return best(table).sort_values("seconds").groupby("method", as_index=False).first()


def ladder(published: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Read the reports' ladder critically: report, method, seconds, copy_gb_per_s, reading, factor_to_next.

    Each figure is turned into the rate of one copy over one host link, were its copies made one after another (direct:
    one a GPU; staged and pipelined: one). `reading` says whether that is nearer, as a factor, to the recorded rate of a
    pageable copy or of a pinned one: that of pipelined, whose forwards hide behind its one copy from the host.
    """
    size, gpus = fact(recorded, "bytes"), fact(recorded, "ranks")
    fastest = best(recorded)
    one_copy = fastest[fastest["method"] == "pipelined"].set_index("memory")["seconds"]
    pageable, pinned = size / one_copy["pageable"] / 1e9, size / one_copy["pinned"] / 1e9
    rows = published.assign(method=published["method"].map(_REPORTED))
    copies = rows["method"].map({"direct": gpus, "staged": 1, "pipelined": 1})
    rows["copy_gb_per_s"] = copies * size / rows["seconds"] / 1e9
    middle = (pageable * pinned) ** 0.5
    rows["reading"] = ["pinned" if rate > middle else "pageable" for rate in rows["copy_gb_per_s"]]
    rows["factor_to_next"] = rows.groupby("report")["seconds"].transform(lambda s: s / s.shift(-1))
    return of_source(rows.drop(columns=["node"]), sources(published, recorded), pageable=pageable, pinned=pinned)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per function: seconds, wrong copies, whether the source changed, and its own clock's claim."""
    rows = run.rows[~run.rows["warm_up"].astype(bool)]
    claimed = rows["claimed_seconds"] if "claimed_seconds" in rows else pd.Series(float("nan"), index=rows.index)
    grouped = rows.assign(claimed_seconds=claimed, wrong=rows["status"] != "ok").groupby("function", sort=False)
    table = grouped.agg(
        seconds=("seconds", "median"),
        claimed_seconds=("claimed_seconds", "median"),
        wrong_repeats=("wrong", "sum"),
        repeats=("wrong", "count"),
        source_changed=("source_changed", "any"),
    ).reset_index()
    return of_run(table, run)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the lab's targets as this run reached them: lab, target, measured, goal, unit, met.

    Empty for a Trial and where nothing was pinned: the targets are about pinned memory.
    """
    return card_of(run, "broadcast", {"sweep": _targets})


def _targets(run: Run) -> list[Target]:
    if "pinned" not in run.plan.memories:
        return []
    table = methods(run)
    pinned = table[(table["memory"] == "pinned") & table["seconds"].notna()]
    fastest = pinned.loc[pinned.groupby("method")["seconds"].idxmin()].set_index("method")
    wrong = int((table["status"] != "ok").sum())

    def target(what: str, method: str, over: str, comparison: str, goal: float) -> Target:
        ratio = fastest.loc[method, "seconds"] / fastest.loc[over, "seconds"]
        spread = sum(fastest.loc[one, "spread_seconds"] / fastest.loc[one, "seconds"] for one in (method, over))
        return Target(what, ratio, comparison, goal, "×", spread=ratio * spread)

    return [
        target("scatter + all-gather over all host links at once", "scatter_all_gather", "links", "≤", 1.05),
        target("best pipelined over scatter + all-gather", "pipelined", "scatter_all_gather", "≥", 3.4),
        Target("settings with a wrong copy", wrong, "=", 0, f"of {len(table)}"),
    ]
