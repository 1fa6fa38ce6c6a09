"""Trials → tables: how far a strategy is from one process, and what gives each bug away."""

from __future__ import annotations

import pandas as pd

from labkit.tables.rows import entries

ERRORS = ["loss_error", "update_error"]


def equality(run) -> pd.DataFrame:
    """Give, a strategy: the largest errors over the ranks, and whether it trained as one process does.

    `loss_error` and `update_error` are relative; equal is less than 0.001, a thousand times what float32 rounding
    gives over a few steps.
    """
    rows = entries(run, "trial")
    rows = rows[rows["variant"] == "right"]
    table = rows.groupby("strategy", sort=False)[ERRORS].max().reset_index()
    table["equal"] = (table[ERRORS] < 1e-3).all(axis=1)
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def symptoms(run) -> pd.DataFrame:
    """Give, a variant: distinct samples and repeated order (shares), update_ratio, update_error, and what it raised."""
    columns = ["variant", "ranks", "distinct", "repeated", "update_ratio", "update_error", "raised"]
    rows = entries(run, "trial").reindex(columns=["rank", *columns])
    table = rows[rows["rank"] == 0][columns].reset_index(drop=True)
    table["raised"] = table["raised"].fillna("")
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table
