"""Trials → tables: how far a pipeline is from the whole model, and what gives each bug away."""

from __future__ import annotations

import pandas as pd

ERRORS = ["output_error", "loss_error", "gradient_error"]


def equality(run) -> pd.DataFrame:
    """Give, a schedule, split and micro-batch count of a Trial: the largest errors over the ranks, and whether equal.

    An error is the largest difference from the unpipelined model as a share of the largest right value; equal is less
    than 0.001, a hundred times what float32 rounding gives (a GPU multiplies a smaller batch in another order).
    """
    columns = ["variant", "schedule", "split", "micro_batches"]
    rows = run.rows.reindex(columns=[*columns, *ERRORS])
    table = rows.groupby(columns, sort=False)[ERRORS].max().reset_index()
    table["equal"] = (table[ERRORS].fillna(0) < 1e-3).all(axis=1)
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


def symptoms(run) -> pd.DataFrame:
    """Give, a variant: step_ms (slowest rank), claimed_ms (its own clock), errors, gradient_ratio, lost_parameters.

    `clock_share` is claimed over the slowest rank's time in the step where they are farthest apart; `gradient_ratio`
    gradient over right gradient; `lost_parameters` are those of the model that no rank holds.
    """
    rows = run.rows.reindex(columns=[*run.rows, *({"claimed_ms", *ERRORS} - {*run.rows})])
    rows = rows[~rows["warm_up"].astype(bool)]
    iterations = rows.groupby(["variant", "iteration"], sort=False)
    slowest, share = iterations["step_ms"].max(), iterations["claimed_ms"].max() / iterations["step_ms"].max()
    held = rows.groupby(["variant", "rank"], sort=False)["parameters"].first().groupby("variant", sort=False).sum()
    grouped = rows.groupby("variant", sort=False)
    table = grouped.agg(
        claimed_ms=("claimed_ms", "median"),
        **{error: (error, "max") for error in ERRORS},
        gradient_ratio=("gradient_ratio", "median"),
        lost_parameters=("all_parameters", "first"),
        micro_batches=("micro_batches", "first"),
    )
    table.insert(0, "step_ms", slowest.groupby("variant", sort=False).median())
    table.insert(2, "clock_share", share.groupby("variant", sort=False).min())
    table["lost_parameters"] -= held
    table = table.reset_index()
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table
