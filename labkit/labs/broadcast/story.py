"""Tables of lab 02 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, resolved, say

_NAMES = {
    "direct": "direct",
    "staged": "staged",
    "nccl": "one copy then NCCL",
    "pipelined": "pipelined",
    "scatter_all_gather": "scatter + all-gather",
}
_SAME = 1.10  # two causes within 10 % of each other are called equal
_PLATEAU = 1.01  # chunk counts within 1 % of the best


def explain_methods(table: pd.DataFrame) -> Markdown:
    """Say which method was fastest, how far behind the slowest is, how near the links it comes, and what failed."""
    right = table[(table["status"] == "ok") & (table["method"] != "links")].sort_values("seconds")
    wrong = table[table["status"] != "ok"]
    if right.empty:
        return say("No setting brought right copies to every GPU.", small=fact(table, "small"))
    if len(right) == 1:
        first = right.iloc[0]
        return say(
            f"One setting was right, {_name(first)}: {units.seconds(first['seconds'])}.", small=fact(table, "small")
        )
    first, last = right.iloc[0], right.iloc[-1]
    rivals = right[right["method"] != first["method"]]
    rival = rivals.iloc[0] if len(rivals) else None
    clear = rival is not None and resolved(
        first["seconds"], rival["seconds"], first["spread_seconds"], rival["spread_seconds"]
    )
    lead = (
        f"**{_name(first)}** was fastest: {units.seconds(first['seconds'])}, "
        f"{units.times(last['seconds'] / first['seconds'])} "
        f"as fast as the slowest, {_name(last)} ({units.seconds(last['seconds'])})."
    )
    if rival is not None and not clear:
        lead = (
            f"Which of **{_name(first)}** ({units.seconds(first['seconds'])}) and **{_name(rival)}** "
            f"({units.seconds(rival['seconds'])}) is faster is not resolved by these data: the gap is "
            "within their spread."
        )
    share = first["share_of_links"]
    near = None
    if share > 0:
        above = max(0.0, 1 / share - 1)
        near = (
            f"{_name(first).capitalize()} takes {1 / share:.2f}× the time that all host links together need to bring "
            f"the tensor in once: {'only ' if share >= 0.95 else ''}{units.percent(above)} above the limit."
        )
    failed = f"Every copy of all {len(table)} settings was compared with the source, and equal."
    if len(wrong):
        failed = f"{len(wrong)} setting(s) failed ({listed(dict.fromkeys(wrong['status']))}) and count for nothing."
    impossible = table[table["verdict"] == "impossible"]
    beaten = f"{len(impossible)} time(s) beat the datasheet's limit: do not believe them." if len(impossible) else None
    return say(lead, near, failed, beaten, small=fact(table, "small"))


def explain_pinning(table: pd.DataFrame) -> Markdown:
    """Say which cause, pinning or the path, made the difference from direct pageable to pipelined pinned."""
    rows = table.set_index("method").reindex(["direct", "pipelined", "scatter_all_gather"])
    if table["pinned_seconds"].isna().all():
        return say(
            "Nothing was pinned in this run, so it cannot tell the two causes apart; the recorded run can.",
            small=fact(table, "small"),
        )
    if rows.loc[["direct", "pipelined"], ["pageable_seconds", "pinned_seconds"]].isna().any(axis=None):
        return say(
            "This run lacks direct or pipelined from one of the memories, so it cannot tell the two causes apart.",
            small=fact(table, "small"),
        )
    pinning, path = rows.loc["direct", "pinning_gain"], rows.loc["pipelined", "path_gain"]
    together = rows.loc["direct", "pageable_seconds"] / rows.loc["pipelined", "pinned_seconds"]
    factors = f"{units.times(pinning)} by pinning, then {units.times(path)} by the path"
    if pinning > path * _SAME:
        verdict = (
            f"**Pinning, not topology, made the difference**: {factors}."
            if path <= _SAME
            else f"**Pinning did more than the path**: {factors}."
        )
    elif path > pinning * _SAME:
        verdict = (
            f"**The path, not pinning, made the difference**: {factors}."
            if pinning <= _SAME
            else f"**The path did more than pinning**: {factors}."
        )
    else:
        verdict = f"Pinning and the path did about the same: {factors}."
    unpinned = rows.loc["direct", "pageable_seconds"] / rows.loc["pipelined", "pageable_seconds"]
    if unpinned > path * _SAME:
        verdict += (
            f" Left in pageable memory, the same path gains {units.times(unpinned)}: it copies from the "
            "slow memory once, not once a GPU."
        )
    step = (
        f"From direct out of pageable memory to pipelined out of pinned memory the time falls {units.times(together)}."
    )
    return say(step, verdict, _one_thread(rows), _scatter_sentence(rows), small=fact(table, "small"))


def _one_thread(rows: pd.DataFrame) -> str | None:
    """Divide direct's gain by pinning into a copy's own (pipelined makes one at a time) and what is left."""
    direct, single = rows.loc["direct", "pinning_gain"], rows.loc["pipelined", "pinning_gain"]
    if not direct > single * 1.5:
        return None
    return (
        f"A single copy gains {units.times(single)} by pinning; direct gains {units.times(direct / single)} more, "
        "because a pageable copy blocks the calling thread, so its copies run one after another."
    )


def _scatter_sentence(rows: pd.DataFrame) -> str | None:
    if not rows.loc["scatter_all_gather", "pinned_seconds"] > 0:
        return None
    gain = rows.loc["pipelined", "pinned_seconds"] / rows.loc["scatter_all_gather", "pinned_seconds"]
    if gain > _SAME:
        return (
            f"Scatter + all-gather is where the path does count: {units.times(gain)} over pipelined, because "
            "every GPU's own host link works."
        )
    return (
        f"Scatter + all-gather gained nothing here ({units.times(gain)} over pipelined): more host links did not help."
    )


def explain_chunks(table: pd.DataFrame) -> Markdown:
    """Say, a method, which number of chunks was best and whether the choice mattered beyond the spread."""
    sentences = []
    table = table[table["seconds"].notna()]
    if table.empty:
        return say("No chunked broadcast was measured.")
    memory = "pinned" if (table["memory"] == "pinned").any() else table["memory"].iloc[0]
    for method, rows in table[table["memory"] == memory].groupby("method", sort=False):
        low, high = rows.loc[rows["seconds"].idxmin()], rows.loc[rows["seconds"].idxmax()]
        if len(rows) == 1:
            sentences.append(f"{_NAMES[method].capitalize()} was run with {low['chunks']} chunks only.")
            continue
        if not resolved(low["seconds"], high["seconds"], low["spread_seconds"], high["spread_seconds"]):
            sentences.append(f"For {_NAMES[method]} the number of chunks makes no difference that these data resolve.")
            continue
        counts = sorted(rows["chunks"])
        ends = {
            counts[0]: "the fewest: chunks cost more than their overlap gains",
            counts[-1]: "the most that were tried",
        }
        why = ends.get(low["chunks"], "fewer overlap less, more cost more launches")
        near = rows.loc[rows["seconds"] <= _PLATEAU * low["seconds"], "chunks"]
        plateau = (
            f"; {near.min()} to {near.max()} are within {units.percent(_PLATEAU - 1)} of it" if len(near) > 1 else ""
        )
        sentences.append(
            f"{_NAMES[method].capitalize()} was best with **{low['chunks']} chunks** ({why}){plateau}; "
            f"{high['chunks']} take {units.percent(high['seconds'] / low['seconds'] - 1)} more."
        )
    return say(f"From {memory} memory:", *sentences, small=fact(table, "small"))


def explain_overlap(share: float, table: pd.DataFrame) -> Markdown:
    """Say how much of the forwarding was hidden behind the host's copies, as the timeline shows it."""
    name = _NAMES.get(fact(table, "method"), fact(table, "method"))
    host = table[table["kind"] == "host"]
    lanes = host["lane"].nunique()
    if not share >= 0:
        text = f"In {name}, nothing was forwarded from GPU to GPU."
    elif share >= 0.5:
        text = f"In {name}, **{units.percent(share)} of the forwarding time was hidden** behind copies from the host."
    else:
        text = f"In {name}, only {units.percent(share)} of the forwarding time was hidden behind copies from the host."
    return say(text, f"{lanes} host link{'s were' if lanes > 1 else ' was'} in use.", small=fact(table, "small"))


def doubt_ladder(table: pd.DataFrame) -> Markdown:
    """Say what the reports' three steps changed: the path, or the memory that the tensor came from."""
    pinned = table[table["reading"] == "pinned"]
    pageable = table[table["reading"] == "pageable"]
    rates = (
        f"a pageable copy reaches {units.rate(fact(table, 'pageable'))} on the recorded node, a pinned one "
        f"{units.rate(fact(table, 'pinned'))}"
    )
    if pinned.empty or pageable.empty:
        kind = "pinned" if pageable.empty else "pageable"
        return say(f"All of the reports' figures fit {kind} memory ({rates}): their steps changed the path alone.")
    fast, slow = (listed(dict.fromkeys(rows["method"])) for rows in (pinned, pageable))
    return say(
        f"The reports credit the path for each step. Yet their {fast} figures ({_range(pinned)} through "
        "one host link) fit "
        f"only pinned memory, and their {slow} figures ({_range(pageable)}) fit pageable memory: {rates}.",
        f"**The step to {fast} changed two things at once**, and the ablation above tells which of them counted.",
    )


def _range(rows: pd.DataFrame) -> str:
    low, high = rows["copy_gb_per_s"].min(), rows["copy_gb_per_s"].max()
    return units.rate(low) if units.rate(low) == units.rate(high) else f"{units.number(low)} to {units.rate(high)}"


def _name(row: pd.Series) -> str:
    chunks = f", {row['chunks']} chunks" if row["chunks"] > 1 else ""
    return f"{_NAMES[row['method']]} ({row['memory']}{chunks})"
