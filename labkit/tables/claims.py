"""Claims of published reports, recomputed: one small function per claim, one table for all claims of a lab.

A lab's `claims.py` holds functions decorated with `claim`. Each returns the figure printed, the figure recomputed and
the verdict. Its docstring is the reason, in plain English, that a reader sees below the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
    "explained",
]
Figure = float | str | None
Verdict = bool | None  # None: what the report prints does not decide it


@dataclass(frozen=True)
class Claim:
    """A claim of a report: what it says, in our words, and the function that recomputes its figure.

    `compute` returns (printed, recomputed, holds). A figure is a number in `unit`, a short text, or None where there is
    none. `digits` are the significant digits with which the recomputed figure is shown. `recomputes` says what that
    figure is, for example "naive's second printed step". `explained`: a reader sees the reason even of a claim that
    holds.
    """

    report: str
    says: str
    unit: str
    digits: int
    compute: Callable[[], tuple[Figure, Figure, Verdict]]
    recomputes: str = ""
    explained: bool = False

    @property
    def reason(self) -> str:
        """The docstring of `compute` as one paragraph."""
        return " ".join(inspect.cleandoc(self.compute.__doc__ or "").split())

    def row(self) -> tuple:
        """Return the claim, recomputed, as a row of COLUMNS."""
        printed, recomputed, holds = self.compute()
        verdict = None if holds is None else bool(holds)
        name, report = self.compute.__name__, report_names()[self.report]
        figures = (printed, recomputed, self.unit, self.digits)
        return (name, report, self.says, *figures, verdict, self.reason, self.recomputes, self.explained)


def claim(
    report: str, says: str, unit: str = "", digits: int = 3, *, recomputes: str = "", explained: bool = False
) -> Callable[[Callable], Claim]:
    """Return a decorator that makes a Claim of a function; `report` is an identifier in data/published/reports.csv."""
    return lambda compute: Claim(report, says, unit, digits, compute, recomputes, explained)


def claims_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """Return the claims, recomputed: one row each, with COLUMNS; `claim` is the name of its function.

    `holds` is True, False, or None where what the report prints does not decide it.
    """
    rows = [one.row() for one in claims]
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"holds": object, "printed": object, "recomputed": object})
    table["holds"] = pd.Series([row[COLUMNS.index("holds")] for row in rows], dtype=object)
    return of_source(table, f"published: {', '.join(dict.fromkeys(table['report']))} · recomputed")
