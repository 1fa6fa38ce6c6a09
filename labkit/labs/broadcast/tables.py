"""Rows of lab 02 → tables: what each method took, what physics allows, what pinning and what the path did."""

from __future__ import annotations

import pandas as pd

from labkit.labs.broadcast.plan import CHUNKED, METHODS, WHOLE
from labkit.node.limits import check, spec

REPORTED = {"broadcast1": "direct", "broadcast2": "staged", "broadcast3": "pipelined"}
SETTING = ["method", "memory", "chunks"]


def theory(plan, gpu_name: str | None) -> pd.DataFrame:
    """Give the least time of each method by datasheet: method, chunks, limit_seconds (NaN for an unknown GPU).

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

    counts = getattr(plan, "chunks", (1,))
    settings = [(m, c) for m in METHODS for c in ((1,) if m in WHOLE else counts)]
    return pd.DataFrame([(m, c, least(m, c)) for m, c in settings], columns=["method", "chunks", "limit_seconds"])


def methods(run) -> pd.DataFrame:
    """Give one row a setting: method, memory, chunks, seconds (median), spread_seconds, count, status, gb_per_s,
    share_of_links, then share_of_limit and verdict against the datasheet.

    `gb_per_s` is what each GPU receives; `share_of_links` compares with the same memory's fastest `links` row: 1.0
    means that the broadcast took no longer than the host links need to bring the tensor in once, all together.
    """
    table = run.medians(SETTING, "seconds")
    table["gb_per_s"] = run.plan.elements * 4 / table["seconds"] / 1e9
    links = table[table["method"] == "links"].groupby("memory")["seconds"].min()
    table["share_of_links"] = table["memory"].map(links) / table["seconds"]
    gpu = run.node.gpus[0].name if run.plan.device == "cuda" else None
    table = table.merge(theory(run.plan, gpu), on=["method", "chunks"], how="left")
    table = check(table, "seconds", "limit_seconds", kind="time").drop(columns=["limit"])
    table.attrs.update(
        source=run.source, small=run.plan.size == "small", gpus=run.plan.gpus, bytes=run.plan.elements * 4
    )
    return table


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Give the fastest chunk count of each method and memory: one row a pair, `links` left out."""
    right = table[(table["status"] == "ok") & (table["method"] != "links")]
    rows = right.loc[right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()].reset_index(drop=True)
    rows.attrs = dict(table.attrs)
    return rows


def ablation(table: pd.DataFrame) -> pd.DataFrame:
    """Give, a method: its seconds from pageable and from pinned memory and what pinning gained (a factor).

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
    result.attrs = dict(table.attrs)
    return result


def chunk_sweep(table: pd.DataFrame) -> pd.DataFrame:
    """Give the rows of the chunked methods, where the number of chunks was turned."""
    rows = table[table["method"].isin(CHUNKED)].reset_index(drop=True)
    rows.attrs = dict(table.attrs)
    return rows


def timeline(run, method: str, chunks: int | None = None, memory: str | None = None) -> pd.DataFrame:
    """Give the copies of one method as spans: lane, kind ("host" or "peer"), start_ms, end_ms, from its first copy on.

    Without `chunks` the smallest count that was run, whose pieces are widest; without `memory` pinned where there is.
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
    table.attrs.update(source=run.source, small=run.plan.size == "small", setting=setting, method=method)
    return table


def overlap(spans: pd.DataFrame) -> float:
    """Give the share of the forwarding time (some peer lane busy) during which a host lane was busy too; 0 to 1."""
    host, peer = (_union(spans[spans["kind"] == kind]) for kind in ("host", "peer"))
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in host for b in peer)
    return both / busy if (busy := sum(end - start for start, end in peer)) else float("nan")


def _union(spans: pd.DataFrame) -> list[tuple[float, float]]:
    """Give the times at which at least one span runs, as intervals that do not overlap."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(zip(spans["start_ms"], spans["end_ms"], strict=True)):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def compare(measured: pd.DataFrame, recorded: pd.DataFrame, published: pd.DataFrame, predicted=None) -> pd.DataFrame:
    """Give predicted, theory, measured, recorded and published seconds of each method: method, origin, seconds.

    Of our runs the fastest setting of each method, from any memory. Theory is the recorded node's: the reports'
    machines had like links. A measured run of another size than the recorded one is left out: its seconds would say
    nothing beside the others.
    """
    if measured is not None and measured.attrs["bytes"] != recorded.attrs["bytes"]:
        measured = None
    parts = []
    for origin, table in (("measured", measured), ("recorded", recorded)):
        if table is not None:
            rows = best(table).sort_values("seconds").groupby("method", as_index=False).first()
            parts.append(rows[["method", "seconds"]].assign(origin=origin))
    limits = rows[["method", "limit_seconds"]]  # of the recorded run, whose rows come last
    parts.append(limits.rename(columns={"limit_seconds": "seconds"}).assign(origin="theory"))
    parts.append(
        published.assign(method=published["method"].map(REPORTED), origin="published")[["method", "seconds", "origin"]]
    )
    if (guess := getattr(predicted, "value", predicted)) is not None:
        parts.append(pd.DataFrame([{"method": "scatter_all_gather", "seconds": guess, "origin": "predicted"}]))
    table = pd.concat(parts, ignore_index=True)[["method", "origin", "seconds"]]
    table.attrs["source"] = " · ".join(t.attrs["source"] for t in (measured, recorded, published) if t is not None)
    return table


def ladder(published: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Read the reports' ladder critically: report, method, seconds, copy_gb_per_s, reading, factor_to_next.

    Each figure is turned into the rate of one copy over one host link, were its copies made one after another (direct:
    one a GPU; staged and pipelined: one). `reading` says whether that is nearer, as a factor, to the recorded rate of a
    pageable copy or of a pinned one: that of pipelined, whose forwards hide behind its one copy from the host.
    """
    size, gpus = recorded.attrs["bytes"], recorded.attrs["gpus"]
    one_copy = best(recorded)[lambda t: t["method"] == "pipelined"].set_index("memory")["seconds"]
    pageable, pinned = size / one_copy["pageable"] / 1e9, size / one_copy["pinned"] / 1e9
    rows = published.assign(method=published["method"].map(REPORTED))
    rows["copy_gb_per_s"] = (
        rows["method"].map({"direct": gpus, "staged": 1, "pipelined": 1}) * size / rows["seconds"] / 1e9
    )
    middle = (pageable * pinned) ** 0.5
    rows["reading"] = ["pinned" if rate > middle else "pageable" for rate in rows["copy_gb_per_s"]]
    rows["factor_to_next"] = rows.groupby("report")["seconds"].transform(lambda s: s / s.shift(-1))
    rows = rows.drop(columns=["node"])
    rows.attrs.update(
        source=f"{published.attrs['source']} · {recorded.attrs['source']}", pageable=pageable, pinned=pinned
    )
    return rows


def symptoms(run) -> pd.DataFrame:
    """Give, a function that was tried: seconds, wrong copies, whether the source changed, and its own clock's claim."""
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
    table.attrs["source"] = run.source
    return table


def scorecard(run) -> pd.DataFrame:
    """Give the lab's targets as this run reached them: lab, target, measured, goal, unit, met.

    Empty for a Trial and where nothing was pinned: the targets are about pinned memory.
    """
    if run.plan.name != "sweep" or "pinned" not in run.plan.memories:
        return pd.DataFrame()
    table = methods(run)
    pinned = best(table)[lambda t: t["memory"] == "pinned"].set_index("method")["seconds"]
    links = table[(table["method"] == "links") & (table["memory"] == "pinned")]["seconds"].min()
    wrong = int((table["status"] != "ok").sum())
    fastest = pinned["scatter_all_gather"]
    rows = [
        (
            "scatter + all-gather over all host links at once",
            fastest / links,
            "≤ 1.05",
            "×",
            fastest / links <= 1.05,
        ),
        (
            "best pipelined over scatter + all-gather",
            pinned["pipelined"] / fastest,
            "≥ 3.4",
            "×",
            pinned["pipelined"] / fastest >= 3.4,
        ),
        ("settings with a wrong copy", wrong, "= 0", f"of {len(table)}", wrong == 0),
    ]
    card = pd.DataFrame(rows, columns=["target", "measured", "goal", "unit", "met"])
    card["measured"] = card["measured"].astype(float).round(3)
    card.insert(0, "lab", "broadcast")
    return card
