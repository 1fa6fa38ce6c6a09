"""Sentences: Markdown made of claims that were tested on the table before they are said."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec

import pandas as pd
from IPython.display import Markdown

from labkit.node.comparability import Difference
from labkit.provenance import condition_differences, is_measured
from labkit.story import units

P = ParamSpec("P")
_TABLES = "tables"  # attribute of sentences: what they are about

SMALL_NOTE = (
    "*This run is small: CPU processes stand in for GPUs and host buffers for GPU memory. It shows that the code is "
    "right and how the steps follow each other; its rates say nothing about GPUs or their links.*"
)


def say(*sentences: str | None, small: bool = False) -> Markdown:
    """Return the sentences as one paragraph, without those that are None; `small` adds what a small run means."""
    text = " ".join(sentence for sentence in sentences if sentence)
    return Markdown(f"{text}\n\n{SMALL_NOTE}" if small else text)


def with_table(table: pd.DataFrame, sentences: Markdown, digits: int = 3) -> Markdown:
    """Return the table as Markdown above the sentences that are about it; floats with `digits` significant digits."""
    return Markdown(f"{as_table(table, digits)}\n\n{sentences.data}")


def as_table(table: pd.DataFrame, digits: int = 3) -> str:
    """Return a table in Markdown; floats with `digits` significant digits."""
    shown = [
        [units.number(value, digits) if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    lines = [list(table.columns), ["---"] * len(table.columns), *shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(said: Markdown) -> str:
    """Return the sentences as a string, to be put into others."""
    return said.data or ""


def together(*sayings: Markdown) -> Markdown:
    """Return what several functions say, a paragraph each; what a small run means is said once, at the end."""
    paragraphs = [part for said in sayings for part in text(said).split("\n\n") if part]
    notes = [SMALL_NOTE] if SMALL_NOTE in paragraphs else []
    return Markdown("\n\n".join([*(part for part in paragraphs if part != SMALL_NOTE), *notes]))


def beside(here: Markdown, recorded: Markdown) -> Markdown:
    """Return the sentences about this machine's run and those about the recorded run, each under its heading.

    Where the conditions of the two runs differ in a way that changes measurements, a third paragraph says how.
    """
    parts = [("Here", here.data or ""), ("Recorded", recorded.data or "")]
    if differences := condition_differences(*(table for said in (here, recorded) for table in tables_of(said)[:1])):
        parts.append(("Conditions", conditions_differ(differences)))
    return Markdown("\n\n".join(f"**{name}.**{_gap(text)}{text}" for name, text in parts))


def conditions_differ(differences: Iterable[Difference]) -> str:
    """Return sentences on what differs between two runs' conditions, and on which measures that has an effect."""
    by_effect = {
        host_only: [one.said() for one in differences if one.host_only is host_only] for host_only in (False, True)
    }
    sentences = []
    if all_measures := by_effect[False]:
        sentences.append(f"The two runs are not comparable: {listed(all_measures)}.")
    if host_measures := by_effect[True]:
        sentences.append(f"Measures that depend on the host are not comparable: {listed(host_measures)}.")
    return " ".join(sentences)


def about_tables(story: Callable[P, Markdown]) -> Callable[P, Markdown]:
    """Have a story's sentences remember the measured tables among its arguments: `beside` compares their conditions."""

    @functools.wraps(story)
    def told(*arguments: P.args, **named: P.kwargs) -> Markdown:
        sentences = story(*arguments, **named)
        given = (*arguments, *named.values())
        vars(sentences)[_TABLES] = [table for table in given if isinstance(table, pd.DataFrame) and is_measured(table)]
        return sentences

    return told


def tables_of(said: Markdown) -> list[pd.DataFrame]:
    """Return the tables that the sentences are about, as far as `about_tables` has kept them."""
    return vars(said).get(_TABLES, [])


def _gap(text: str) -> str:
    """Return what stands between a heading and a text: a list or a table begins on a line of its own."""
    return "\n\n" if text.startswith(("- ", "|")) else " "


def listed(items: Iterable[object]) -> str:
    """Join as one says it: "a", "a and b", "a, b and c"; "none" of no items."""
    *most, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def resolved(a: float, b: float, spread_a: float, spread_b: float) -> bool:
    """Say whether two medians differ by more than their half-spreads together, so that one may be called faster."""
    return abs(a - b) > spread_a + spread_b


def bullets(*sentences: str | None, small: bool = False) -> Markdown:
    """Return the sentences as a list, one bullet each, without those that are empty; `small` adds what that means."""
    return say("\n".join(f"- {sentence}" for sentence in sentences if sentence), small=small)


def capitalised(name: str) -> str:
    """Return a name as it begins a sentence: "our FlashAttention" as "Our FlashAttention"."""
    return name[:1].upper() + name[1:]
