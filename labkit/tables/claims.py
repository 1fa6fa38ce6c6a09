"""Claims of published reports, recomputed: one table for all claims of a lab.

A lab's `claims.csv` holds what reports say, a row a claim; `FIGURES` in its `claims.py` what decides each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from labkit.provenance import of_source
from labkit.tables.published import report_names

Figure = float | str | None
ClaimVerdict = bool | None  # None: what the report prints does not decide it


@dataclass(frozen=True)
class Figures:
    """What decides a claim: the report's figure, ours in the same unit, and the rule by which the claim holds.

    printed: read from data/published where that holds it. recomputed: from formulas, published figures or recorded
    runs. holds: takes both figures and returns the verdict, as `within(1.25)` does.
    """

    printed: Callable[[], Figure]
    recomputed: Callable[[], Figure]
    holds: Callable[[Any, Any], ClaimVerdict]


def within(factor: float) -> Callable[[float, float], bool]:
    """Return the rule that a claim holds where the printed and the recomputed figure differ by at most this factor."""
    return lambda printed, recomputed: 1 / factor <= printed / recomputed <= factor


def undecided(_printed: Figure, _recomputed: Figure) -> None:
    """Return the verdict on a claim that what the report prints does not decide."""


def read_claims(file: Path) -> pd.DataFrame:
    """Return what a `claims.csv` holds, a row a claim.

    claim: its name. report: an identifier in data/published/reports.csv; where: the section, table or line that says
    it. says: the claim, in our words. unit and digits: of both figures. recomputes: what ours is, in a few words.
    reason: at most 25 words. chosen: whether a notebook shows it; the others stand folded below.
    """
    table = pd.read_csv(file, keep_default_na=False)
    return table.assign(chosen=table["chosen"] == "yes")


def claims_table(claims: pd.DataFrame, figures: Mapping[str, Figures]) -> pd.DataFrame:
    """Return the claims of `read_claims` with the names of their reports, and `printed`, `recomputed` and `holds`.

    `holds` is True, False, or None where what the report prints does not decide it. Raises KeyError for a claim
    without figures.
    """
    rows = []
    for claim in claims["claim"]:
        printed, recomputed = figures[claim].printed(), figures[claim].recomputed()
        verdict = figures[claim].holds(printed, recomputed)
        rows.append((printed, recomputed, None if verdict is None else bool(verdict)))
    decided = pd.DataFrame(rows, columns=["printed", "recomputed", "holds"], index=claims.index, dtype=object)
    table = pd.concat([claims.assign(report=claims["report"].map(report_names())), decided], axis=1)
    return of_source(table, f"published: {', '.join(dict.fromkeys(table['report']))} · recomputed")
