"""Rows of a run by kind."""

from __future__ import annotations

import pandas as pd


def entries(run, entry: str) -> pd.DataFrame:
    """Give the rows of one kind, such as "memory", for all ranks."""
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, "entry"])])
    return rows[rows["entry"] == entry]
