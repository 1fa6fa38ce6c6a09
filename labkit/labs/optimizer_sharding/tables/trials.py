"""Trials → tables: how far our optimizer is from the one that shards nothing, and what gives each bug away."""

from __future__ import annotations

import pandas as pd

from labkit.labs.optimizer_sharding.tables.memory import sourced
from labkit.tables.rows import entries

SAME = 1e-6
SYMPTOMS = {"state_share": "max", "error": "max", "first_error": "max", "drift": "max", "saved": "min"}


def equality(run) -> pd.DataFrame:
    """Give, an optimizer and case: the largest `error` and `drift` over the ranks, `moved`, `asked`, and `equal`.

    Equal is an error of at most 1e-6 of a tensor's largest number, after weights have moved by much more.
    """
    rows = entries(run, "equality")
    shown = {"error": "max", "drift": "max", "moved": "min", "asked": "max", "state_share": "max"}
    table = rows.groupby(["optimizer", "case"], sort=False).agg(shown).reset_index()
    table["equal"] = (table["error"] <= SAME) & (table["drift"] <= SAME) & (table["moved"] > 1000 * SAME)
    return sourced(table, run)


def symptoms(run) -> pd.DataFrame:
    """Give, a variant: the fullest rank's share of the states, all ranks' shares together, and the worst of the rest.

    `first_error` is after one step, `error` after all; `saved` is the share of a state_dict's numbers that are right.
    """
    rows = entries(run, "trial")
    grouped = rows.groupby("variant", sort=False)
    table = grouped.agg(SYMPTOMS).rename(columns={"state_share": "fullest"})
    table.insert(1, "together", grouped["state_share"].sum())
    return sourced(table.assign(ranks=run.plan.gpus).reset_index(), run)


def faults(row: dict) -> list[str]:
    """Give the names of the bugs that a variant's symptoms show; "wrong" where it is none that is known."""
    found = []
    if row["fullest"] > 1.05 / row["ranks"]:
        # Shares that add up to one state of each are shared out, if unevenly.
        found.append("by_count" if row["together"] < 1.05 else "shards_nothing")
    if row["drift"] > SAME:
        found.append("sends_nothing")
    elif row["first_error"] > SAME:
        found.append("wrong")
    elif row["error"] > SAME:
        found.append("stale_rate")
    if row["saved"] < 0.99:
        found.append("own_part")
    return found
