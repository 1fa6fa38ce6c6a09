"""Rows of a run by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from labkit.engine.run import Run


def entries(run: Run, entry: str) -> pd.DataFrame:
    """Return the rows of one kind, such as "memory", for all ranks."""
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, "entry"])])
    return rows[rows["entry"] == entry]
