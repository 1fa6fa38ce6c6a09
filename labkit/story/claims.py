"""A table of claims → what a reader sees: the claims with their verdicts, and the reasons of those that do not hold."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units

HOLDS, FAILS = "✔ holds", "✘ does not hold"


def show_claims(table: pd.DataFrame) -> Markdown:
    """Return the claims as a Markdown table, then one bullet per claim that does not hold, with its reason.

    Takes what `labkit.tables.claims.claims` returns.
    """
    several = "lab" in table
    head = [*(["lab"] if several else []), "report", "the report says", "printed", "recomputed", "verdict"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in table.to_dict("records"):
        figures = [_figure(row["printed"], row["unit"]), _figure(row["recomputed"], row["unit"])]
        cells = [*([row["lab"]] if several else []), row["report"], row["says"], *figures]
        lines.append(f"| {' | '.join([*cells, HOLDS if row['holds'] else FAILS])} |")
    failing = table[~table["holds"]]
    held = len(table) - len(failing)
    lines += ["", f"**{held} of {len(table)} claims hold.**"]
    lines += [f"- *{row['says']}* ({row['report']}): {row['reason']}" for row in failing.to_dict("records")]
    return Markdown("\n".join([*lines[: len(table) + 4], "", *lines[len(table) + 4 :]]))


def _figure(value, unit: str) -> str:
    """Return a figure as a reader sees it: three digits and the unit; a text as it is; a dash for nothing."""
    if value is None or value != value:
        return "–"
    return value if isinstance(value, str) else f"{units.number(float(value))}{f' {unit}' if unit else ''}"
