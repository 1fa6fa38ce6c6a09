"""Ours beside nccl-tests → sentences: whether the goal is met, missed or open, collective by collective."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, say
from lessons.collectives.story.rates import ends
from lessons.collectives.theory import AGAINST_FROM_BYTES, AGAINST_GOAL


@about_tables
def explain_against(table: pd.DataFrame) -> Markdown:
    """Say whether our bus bandwidth reaches the goal of nccl-tests' from 64 MiB up, collective by collective."""
    small = fact(table, "small")
    if not fact(table, "installed"):
        return say("**nccl-tests is not installed here**, so there is nothing to compare with.", small=small)
    rows = table[table["ratio"].notna()]
    large = rows[rows["bytes"] >= AGAINST_FROM_BYTES]
    if large.empty:
        size = units.size(AGAINST_FROM_BYTES)
        return say(f"Nothing was timed beside nccl-tests from {size} up: {_failed(table)}.", small=small)
    shares = ends(large["ratio"], lambda value: units.number(value, 3))
    span = f"from {units.size(large['bytes'].min())} up"
    reached = f"In one run, {span}, ours reaches {shares} of nccl-tests' bus bandwidth."
    return say(reached, *_verdicts(large), _gone(table), small=small)


def _verdicts(large: pd.DataFrame) -> list[str]:
    """Say who meets the goal, who misses it, and for whom our times' spread leaves it open."""
    worst = large.loc[large.groupby("collective", sort=False)["ratio"].idxmin()]
    below_goal, distance_from_goal = worst["ratio"] < AGAINST_GOAL, (worst["ratio"] - AGAINST_GOAL).abs()
    is_open = distance_from_goal <= worst["spread_share"] * worst["ratio"]
    missed, undecided = worst[below_goal & ~is_open], worst[is_open]
    met = f"{len(worst) - len(missed) - len(undecided)} of {len(worst)} collectives meet it"
    if missed.empty and undecided.empty:
        return [f"**The goal, {AGAINST_GOAL}, is met** by all {len(worst)} collectives at every size."]
    sentences = []
    if len(missed):
        sentences.append(f"**The goal, {AGAINST_GOAL}, is missed** by {_ratios(missed)}; {met}.")
    else:
        sentences.append(f"**Whether the goal, {AGAINST_GOAL}, is met is open** for {_ratios(undecided)}; {met}.")
    if len(undecided):
        distance = "miss" if below_goal[is_open].all() else "distance from the goal"
        names = listed(undecided["collective"])
        sentences.append(f"For {names} the {distance} is within the spread of our times.")
    return sentences


def _ratios(rows: pd.DataFrame) -> str:
    return listed(
        f"{row.collective} ({units.number(row.ratio)} at {units.size(row.bytes)})" for row in rows.itertuples()
    )


def _gone(table: pd.DataFrame) -> str | None:
    gone = sorted(set(table.loc[table["status"] != "ok", "collective"]))
    return f"No comparison for {listed(gone)}: {_failed(table)}." if gone else None


def _failed(table: pd.DataFrame) -> str:
    rows = table[table["status"] != "ok"]
    reasons = dict.fromkeys(f"{row.status}{f' ({row.said})' if row.said else ''}" for row in rows.itertuples())
    return listed(reasons) if reasons else "no size was that large"
