"""Rows of trials beside one process → how far a strategy's training is from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run
from labkit.tables.rows import entries

if TYPE_CHECKING:
    from labkit.engine.run import Run

ERRORS = ["loss_error", "update_error"]
ROUNDING = 1e-3  # a thousand times what float32 rounding gives over a few steps


def equality(run: Run) -> pd.DataFrame:
    """Return per strategy: the largest errors over the ranks, and whether it trained as one process does.

    `loss_error` and `update_error` are relative; both are less than ROUNDING where a strategy is `equal`. A run without
    the variant "right" has no rows.
    """
    rows = entries(run, "trial").reindex(columns=["variant", "strategy", *ERRORS])
    table = rows[rows["variant"] == "right"].groupby("strategy", sort=False)[ERRORS].max().reset_index()
    table["equal"] = (table[ERRORS] < ROUNDING).all(axis=1)
    return of_run(table, run)
