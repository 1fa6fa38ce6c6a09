"""What published reports claim, lab by lab: recomputed, judged and shown."""

from __future__ import annotations

import importlib
from types import ModuleType

import pandas as pd
from IPython.display import Markdown

from labkit.repository import LESSONS, PUBLISHED
from labkit.story.claims import claims_text
from labkit.story.words import as_table
from labkit.tables.claims import claims_table, read_claims


def claims(lab: ModuleType) -> pd.DataFrame:
    """Return the claims that `lab` (such as `lessons.pipeline`) recomputes, one row each, in the order of its file.

    Raises ValueError, listing the labs that have claims, where `lab` has none.
    """
    return claims_of(lab.__name__.rpartition(".")[2])


def claims_of(name: str) -> pd.DataFrame:
    """Return the claims of the lab of this name, such as "pipeline", as `claims` does."""
    if name not in labs_with_claims():
        raise ValueError(f"{name} has no claims; these labs have: {', '.join(labs_with_claims())}")
    figures = importlib.import_module(f"lessons.{name}.claims").FIGURES
    return claims_table(read_claims(LESSONS / name / "claims.csv"), figures)


def show_claims(lab: ModuleType) -> Markdown:
    """Return the claims of a lab with their verdicts and, below them, the reasons that are needed.

    Claims that are not chosen for its notebook stand folded at the end.
    """
    return claims_text(claims(lab))


def published_reports() -> Markdown:
    """Return a table of the reports that the labs read: name, what it is about, and its hardware."""
    return Markdown(as_table(pd.read_csv(PUBLISHED / "reports.csv").drop(columns="report")))


def labs_with_claims() -> list[str]:
    """Return the names of the labs that have a `claims.csv`."""
    return sorted(file.parent.name for file in LESSONS.glob("*/claims.csv"))
