"""Least batches of machines, and recorded training beside them → sentences: was the bound enough?"""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import listed, say

POINT = 0.02  # of a single GPU's speed; less than this, or than the spread, is no difference
FULL = 0.9  # of a single GPU's speed


def explain_measured(table: pd.DataFrame) -> Markdown:
    """Say, a strategy, how far above the datasheets' bound it ran, what it reached, and whether its parts say so."""
    bullets = [_strategy(STRATEGY_NAMES.get(name, name), rows) for name, rows in table.groupby("strategy", sort=False)]
    return say(
        "\n".join(f"- {bullet}" for bullet in bullets),
        "" if table.empty else f"\n\n{_lesson(table)}",
        small=table.attrs["small"],
    )


def _strategy(name: str, rows: pd.DataFrame) -> str:
    said = []
    for row in rows.itertuples():
        over = (
            f", {units.times(row.tokens / row.bound_tokens)} the bound," if row.bound_tokens == row.bound_tokens else ""
        )
        lost = row.added - row.efficiency
        why = (
            "as its parts add up to"
            if abs(lost) <= max(POINT, row.spread)
            else f"less than its parts add up to ({units.percent(row.added)})"
            if lost > 0
            else f"more than its parts add up to ({units.percent(row.added)}): some is hidden"
        )
        said.append(
            f"{units.count(row.tokens)} tokens a GPU{over} keep {units.percent(row.efficiency)} of one GPU's "
            f"speed, {why}"
        )
    return f"**{name}**: {listed(said)}."


def _lesson(table: pd.DataFrame) -> str:
    known = table[table["bound_tokens"].notna()]
    if known.empty:
        return "No datasheet is known for this machine, so it has no bound."
    above = known[known["tokens"] > known["bound_tokens"]]
    short = above[above["efficiency"] < FULL]
    if above.empty:
        return "All of it ran below the bound."
    if short.empty:
        return f"Above the bound every setting keeps {units.percent(FULL)} or more: the bound was enough."
    unexplained = short[short["added"] - short["efficiency"] > short["spread"].clip(lower=POINT)]
    why = (
        "Something in no part is lost: a host that issues too slowly, GPUs that wait for one another, or collectives "
        "that slow the math. These data do not say which; a profile may (lab 05)."
        if len(unexplained)
        else "Their parts, one after the other, add up to that: latency, slower links than the datasheet's, or nothing "
        "hidden. These data do not say which."
    )
    return (
        f"**The bound is not sufficient**: {len(short)} of {len(above)} settings above it keep less than "
        f"{units.percent(FULL)}. {why}"
    )
