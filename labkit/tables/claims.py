"""Claims of published reports, recomputed: one row per claim, one table for all claims of a lab.

A lab's `claims.py` holds `CLAIMS`, a tuple of Stated rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from labkit.provenance import of_source
from labkit.tables.published import report_names

COLUMNS = [
    "claim",
    "report",
    "says",
    "printed",
    "recomputed",
    "unit",
    "digits",
    "holds",
    "reason",
    "recomputes",
    "where",
    "chosen",
]
Figure = float | str | None
Verdict = bool | None  # None: what the report prints does not decide it


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A claim of a report as a row: what it says and where, its figure, ours, and the rule by which it holds.

    report: an identifier in data/published/reports.csv; where: the section, table or line that says it. says: the
    claim, in our words. printed: the report's figure, read from data/published where that holds it. recomputed: a
    figure in the same `unit` from formulas, published figures or recorded runs; recomputes: what it is, in a few words.
    holds: takes both figures and returns the verdict, as `within(1.25)` does. reason: at most 25 words. chosen: whether
    a notebook shows it; the others stand folded below.
    """

    name: str
    report: str
    where: str
    says: str
    printed: Callable[[], Figure]
    recomputed: Callable[[], Figure]
    holds: Callable[[Any, Any], Verdict]
    reason: str
    unit: str = ""
    digits: int = 3
    recomputes: str = ""
    chosen: bool = True

    def row(self) -> tuple:
        """Return the claim, recomputed, as a row of COLUMNS."""
        printed, recomputed = self.printed(), self.recomputed()
        verdict = self.holds(printed, recomputed)
        figures = (printed, recomputed, self.unit, self.digits)
        reasons = (None if verdict is None else bool(verdict), self.reason, self.recomputes)
        return (self.name, report_names()[self.report], self.says, *figures, *reasons, self.where, self.chosen)


def within(factor: float) -> Callable[[float, float], bool]:
    """Return the rule that a claim holds where the printed and the recomputed figure differ by at most this factor."""
    return lambda printed, recomputed: 1 / factor <= printed / recomputed <= factor


def undecided(_printed: Figure, _recomputed: Figure) -> None:
    """Return the verdict on a claim that what the report prints does not decide."""


def claims_table(claims: Iterable[Stated]) -> pd.DataFrame:
    """Return the claims, recomputed: one row each, with COLUMNS; `claim` is its name.

    `holds` is True, False, or None where what the report prints does not decide it.
    """
    rows = [one.row() for one in claims]
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"holds": object, "printed": object, "recomputed": object})
    table["holds"] = pd.Series([row[COLUMNS.index("holds")] for row in rows], dtype=object)
    return of_source(table, f"published: {', '.join(dict.fromkeys(table['report']))} · recomputed")
