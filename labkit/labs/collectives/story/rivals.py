"""Ours beside others' → sentences: nccl-tests on the same GPUs, and the library's all-reduce beside our ring."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.labs.collectives.story.rates import ends
from labkit.labs.collectives.theory.volume import bus_factor
from labkit.story import units
from labkit.story.words import listed, resolved, say

GOAL, FROM = 0.98, 64 * units.MIB
SAME = 0.01  # of the bytes: chunks differ by an element


def explain_against(table: pd.DataFrame) -> Markdown:
    """Say whether our bus bandwidth reaches 0.98 of nccl-tests' from 64 MiB up, collective by collective."""
    small = table.attrs["small"]
    if not table.attrs["installed"]:
        return say("**nccl-tests is not installed here**, so there is nothing to compare with.", small=small)
    rows = table[table["ratio"].notna()]
    large = rows[rows["bytes"] >= FROM]
    if large.empty:
        return say(f"Nothing was timed beside nccl-tests from {units.size(FROM)} up: {_failed(table)}.", small=small)
    worst = large.loc[large.groupby("collective", sort=False)["ratio"].idxmin()]
    missed = worst[worst["ratio"] < GOAL]
    span = f"from {units.size(large['bytes'].min())} up"
    shares = ends(large["ratio"], lambda value: units.number(value, 3))
    said = f"In one run, {span}, ours reaches {shares} of nccl-tests' bus bandwidth."
    if missed.empty:
        verdict = f"**The goal, {GOAL}, is met** by all {len(worst)} collectives at every size."
    else:
        names = listed(
            f"{row.collective} ({units.number(row.ratio)} at {units.size(row.bytes)})" for row in missed.itertuples()
        )
        met = f"{len(worst) - len(missed)} of {len(worst)} collectives meet it"
        verdict = f"**The goal, {GOAL}, is missed** by {names}; {met}."
    return say(said, verdict, _doubtful(missed), _gone(table), small=small)


def _doubtful(missed: pd.DataFrame) -> str | None:
    """Say which misses are smaller than our own times' spread."""
    near = missed[missed["ratio"] + missed["spread_share"] * missed["ratio"] >= GOAL]
    if near.empty:
        return None
    return f"For {listed(near['collective'])} the miss is within our times' spread: not resolved by these data."


def _gone(table: pd.DataFrame) -> str | None:
    gone = sorted(set(table.loc[table["status"] != "ok", "collective"]))
    return f"No comparison for {listed(gone)}: {_failed(table)}." if gone else None


def _failed(table: pd.DataFrame) -> str:
    rows = table[table["status"] != "ok"]
    said = dict.fromkeys(f"{row.status}{f' ({row.said})' if row.said else ''}" for row in rows.itertuples())
    return listed(said) if said else "no size was that large"


def explain_ring(table: pd.DataFrame) -> Markdown:
    """Say whether our ring is right for every length and sends what the formula says, and what it costs in time."""
    return say(_right(table), _sent(table), *_timed(table), small=table.attrs["small"])


def _right(table: pd.DataFrame) -> str:
    wrong = table[table["status"] != "ok"]
    counts = listed(sorted(set(table["ranks"])))
    if wrong.empty:
        odd = (table["elements"] % table["ranks"] != 0).sum()
        return f"Our ring gives the right sums on {counts} ranks, {odd} of {len(table)} lengths not divisible by them."
    where = listed(f"length {units.count(row.elements)} on {row.ranks} ranks" for row in wrong.itertuples())
    return f"**Our ring is wrong** for {where}: {listed(dict.fromkeys(wrong['status']))}."


def _sent(table: pd.DataFrame) -> str:
    large = table[table["elements"] > 100 * table["ranks"]]  # in fewer, one element more is not small
    share = [bus_factor("all-reduce", ranks) for ranks in large["ranks"]]
    off = (large["sent_bytes"] / (share * large["bytes"]) - 1).abs().max()
    if pd.isna(off):
        return "No length was large enough to hold the bytes against the formula."
    if off <= SAME:
        counts = listed(f"N = {ranks}" for ranks in sorted(set(large["ranks"])))
        return f"A rank sends 2(N − 1)/N of the message, as the formula says, for {counts}."
    return f"**What a rank sends differs from 2(N − 1)/N of the message by {units.percent(off)}.**"


def _timed(table: pd.DataFrame) -> list[str]:
    """Say of the shortest and the longest message what ours takes, and of how many times the library's that is."""
    said = []
    for ranks, own in table.dropna(subset="times").groupby("ranks"):
        rows = [own.loc[own["elements"] == pick(own["elements"])].iloc[0] for pick in (min, max)]
        known = [row for row in rows if _resolved(row)]
        parts = [f"{units.times(row['times'])} the library's time for {units.size(row['bytes'])}" for row in known]
        if vague := [units.size(row["bytes"]) for row in rows if not _resolved(row)]:
            parts.append(f"for {listed(vague)} a time that these data do not tell from the library's")
        said.append(f"On {ranks} ranks it takes {listed(parts)}.")
    return said


def _resolved(row: pd.Series) -> bool:
    return resolved(row["ours_us"], row["library_us"], row["spread_ours_us"], row["spread_library_us"])
