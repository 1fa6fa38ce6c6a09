"""What published reports claim, recomputed: one small function a claim, one table for all of a lab's claims.

A lab's `claims.py` holds functions decorated with `claim`. Each returns the figure printed, the figure recomputed, and
whether the claim holds; its docstring is the reason, in plain English, that a reader sees where it does not.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pandas as pd

from labkit.provenance import of_source

COLUMNS = ["report", "says", "printed", "recomputed", "unit", "holds", "reason"]
Figure = float | str | None


@dataclass(frozen=True)
class Claim:
    """A claim of a report: what it says in our words, and the function that recomputes its figure.

    `compute` returns (printed, recomputed, holds); its docstring is the reason. A figure is a number in `unit`, a
    short text, or None where the report prints, or we compute, nothing.
    """

    report: str
    says: str
    unit: str
    compute: Callable[[], tuple[Figure, Figure, bool]]

    @property
    def reason(self) -> str:
        """The reason, as one paragraph."""
        return " ".join(inspect.cleandoc(self.compute.__doc__ or "").split())

    def row(self) -> tuple:
        """Return the claim, recomputed, as a row of COLUMNS."""
        printed, recomputed, holds = self.compute()
        return (self.report, self.says, printed, recomputed, self.unit, bool(holds), self.reason)


def claim(report: str, says: str, unit: str = "") -> Callable[[Callable], Claim]:
    """Return a decorator that makes a claim of a function; `report` is a name in data/published/README.md."""
    return lambda compute: Claim(report, says, unit, compute)


def claims(lab: str = "") -> pd.DataFrame:
    """Return the claims of a lab ("broadcast"), or of all labs, recomputed: one row a claim, in COLUMNS.

    Claims of all labs have a first column `lab`. Raises ValueError, listing the labs, where `lab` has no claims.
    """
    names = labs_with_claims()
    if lab and lab not in names:
        raise ValueError(f"{lab!r} has no claims; these labs have: {', '.join(names)}")
    if lab:
        rows = [one.row() for one in _of_module(_module(lab))]
        table = pd.DataFrame(rows, columns=COLUMNS)
        return of_source(table, f"published: {', '.join(dict.fromkeys(table['report']))} · recomputed")
    tables = [claims(name).assign(lab=name) for name in names]
    table = pd.concat(tables, ignore_index=True)[["lab", *COLUMNS]]
    return of_source(table, "published reports · recomputed")


def labs_with_claims() -> list[str]:
    """Return the labs that have a `claims.py`, by name."""
    return sorted(file.parent.name for file in (Path(__file__).parents[1] / "labs").glob("*/claims.py"))


def _module(lab: str) -> ModuleType:
    return importlib.import_module(f"labkit.labs.{lab}.claims")


def _of_module(module: ModuleType) -> Iterator[Claim]:
    return (value for value in vars(module).values() if isinstance(value, Claim))
