"""Claims of reports → what a reader sees: a table with the verdicts, then the reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.verdict import folded
from labkit.story.words import listed

VERDICTS = {True: "✔ holds", False: "✘ does not hold", None: "○ cannot be decided"}
HEADS = ["report", "the report says", "printed", "recomputed", "verdict"]


def claims_text(table: pd.DataFrame) -> Markdown:
    """Return the claims of `labkit.tables.claims.claims_table` as Markdown: the chosen ones, then the others, folded.

    Each part is a table with verdicts, then reasons for the claims that do not hold, that cannot be decided, or that
    ask for it: one reason for reports that say the same.
    """
    chosen = table["chosen"].astype(bool)
    parts = [f"**{tally(table['holds'])}.**", _with_reasons(table[chosen])]
    if not chosen.all():
        parts.append(folded(f"The other claims: {(~chosen).sum()}", _with_reasons(table[~chosen])))
    return Markdown("\n\n".join(parts))


def tally(verdicts: Iterable[bool | None]) -> str:
    """Return how many claims there are, and how many have each verdict that some claim has."""
    verdicts = list(verdicts)
    counts = {words: sum(holds is verdict for holds in verdicts) for verdict, words in VERDICTS.items()}
    each = ", ".join(f"{words}: {count}" for words, count in counts.items() if count)
    return f"Claims: {len(verdicts)}" + (f". {each}" if each else "")


def _with_reasons(table: pd.DataFrame) -> str:
    lines = [f"| {' | '.join(HEADS)} |", f"|{' --- |' * len(HEADS)}"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in table.to_dict("records")]
    lines.append("")
    reports: dict[tuple[str, str], list[str]] = {}
    for row in table.to_dict("records"):
        if row["holds"] is not True:
            reports.setdefault((row["says"], row["reason"]), []).append(row["report"])
    lines += [
        escape(f"- *{says}* ({listed(names)}): {reason}", quote=False) for (says, reason), names in reports.items()
    ]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    """Return a claim's cells: report and place, words, printed figure, recomputed one with what it is, verdict."""
    printed = _figure(row["printed"], row["unit"], 6)
    recomputed = _figure(row["recomputed"], row["unit"], row["digits"])
    meaning = f": {row['recomputes']}" if row["recomputes"] else ""
    report = f"{row['report']}, {row['where']}" if row["where"] else row["report"]
    texts = [report, row["says"], printed, recomputed + meaning, VERDICTS[row["holds"]]]
    return [escape(text, quote=False) for text in texts]


def _figure(value: float | str | None, unit: str, digits: int) -> str:
    """Return a figure as a reader sees it: at most `digits` significant digits, and its unit; a dash for nothing.

    A text stands as it is; the unit follows a list of figures, such as "4, 8".
    """
    if isinstance(value, str):
        return f"{value} {unit}".strip() if value[-1:].isdigit() else value
    if value is None or not math.isfinite(value):
        return "–"
    text = units.count(value) if value == int(value) and abs(value) < 10**digits else units.number(value, digits)
    text = units.trimmed(text) if digits > 3 else text
    return f"{text} {unit}".strip()
