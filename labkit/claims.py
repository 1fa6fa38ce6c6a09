"""What published reports claim, lab by lab: recomputed, judged and shown."""

from __future__ import annotations

import importlib
from types import ModuleType

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import of_source
from labkit.repository import REPOSITORY
from labkit.story.claims import claims_text
from labkit.tables.claims import Claim, claims_table


def claims(lab: ModuleType) -> pd.DataFrame:
    """Return the claims that `lab` (such as `labkit.labs.pipeline`) recomputes, one row each, in the order of its file.

    Raises ValueError, listing the labs that have claims, where `lab` has none.
    """
    name = lab.__name__.rpartition(".")[2]
    if name not in labs_with_claims():
        raise ValueError(f"{name} has no claims; these labs have: {', '.join(labs_with_claims())}")
    module = importlib.import_module(f"{lab.__name__}.claims")
    return claims_table(value for value in vars(module).values() if isinstance(value, Claim))


def all_claims() -> pd.DataFrame:
    """Return the claims of all labs as one table, with a first column `lab`."""
    tables = [claims(importlib.import_module(f"labkit.labs.{name}")).assign(lab=name) for name in labs_with_claims()]
    table = pd.concat(tables, ignore_index=True) if tables else claims_table([]).assign(lab="")
    return of_source(table[["lab", *table.columns.drop("lab")]], "published reports · recomputed")


def show_claims(lab: ModuleType | None = None) -> Markdown:
    """Return the claims of a lab, or of all labs, with their verdicts; below them why some do not hold."""
    return claims_text(all_claims() if lab is None else claims(lab))


def labs_with_claims() -> list[str]:
    """Return the names of the labs that have a `claims.py`."""
    return sorted(file.parent.name for file in (REPOSITORY / "labkit" / "labs").glob("*/claims.py"))
