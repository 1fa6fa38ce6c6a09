"""Rows → samples a second by strategy, with spread, and how far each is from DDP."""

from __future__ import annotations

import pandas as pd

from labkit.tables.rates import rates

SETTING = ["strategy", "ranks", "batch", "precision", "fused", "compiled"]


def throughput(run) -> pd.DataFrame:
    """Give one row a setting: its knobs, step_ms (median), spread, count, status, samples_per_s, its spread, seed_std.

    `seed_std` is the standard deviation over the seeds' medians, as reports print it; a step lasts as long as its
    slowest rank. "single" exchanges nothing: its ranks train side by side, `batch` samples together. `efficiency` is
    the rate over that of "single" at the same setting.
    """
    table = rates(run, SETTING)
    alone = table[table["strategy"] == "single"].set_index(["batch", "precision"])["samples_per_s"]
    keys = zip(table["batch"], table["precision"], strict=True)
    table["efficiency"] = table["samples_per_s"] / [alone.get(key, float("nan")) for key in keys]
    return table
