"""Sentences: Markdown made of claims that were tested on the table before they are said."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from IPython.display import Markdown

from labkit.story import units


def say(*sentences: str | None) -> Markdown:
    """Return the sentences as one paragraph, without those that are None."""
    return Markdown(" ".join(sentence for sentence in sentences if sentence))


def as_table(table: pd.DataFrame, digits: int = 3) -> str:
    """Return a table in Markdown; floats with `digits` significant digits."""
    shown = [
        [units.number(value, digits) if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    lines = [list(table.columns), ["---"] * len(table.columns), *shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listed(items: Iterable[object]) -> str:
    """Join as one says it: "a", "a and b", "a, b and c"; "none" of no items."""
    *most, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def resolved(a: float, b: float, spread_a: float, spread_b: float) -> bool:
    """Say whether two medians differ by more than their half-spreads together, so that one may be called faster."""
    return abs(a - b) > spread_a + spread_b


def bullets(*sentences: str | None) -> Markdown:
    """Return the sentences as a list, one bullet each, without those that are empty."""
    return say("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def capitalised(name: str) -> str:
    """Return a name as it begins a sentence: "our FlashAttention" as "Our FlashAttention"."""
    return name[:1].upper() + name[1:]
