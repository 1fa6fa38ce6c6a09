"""Rows of benchmarks on trial → what each shows, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_run
from labkit.tables.rows import entries

if TYPE_CHECKING:
    from labkit.engine.run import Run

SEEN = [
    "reported_ms",
    "true_ms",
    "first_times",
    "in_flight",
    "steps_before",
    "loss_apart",
    "gradient_times",
    "batches_inside",
]
_GROWN = 1.5  # times the gradients of one backward


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per benchmark on trial: `variant`, and SEEN (see `worker.trials.put_on_trial`)."""
    return of_run(entries(run, "trial").reindex(columns=["variant", *SEEN]).reset_index(drop=True), run)


def wrong_by_rows(row: dict[str, Any]) -> list[str]:
    """Return what is wrong with a benchmark, by what it did alone: names of bugs, none for a right one."""
    signs = {
        "unsynchronised": row["in_flight"] > 0,
        "first_inside": row["steps_before"] == 0,
        "dropout_on": row["loss_apart"] > 0,
        "uncleared": row["gradient_times"] > _GROWN,
        "data_inside": row["batches_inside"] > 0,
    }
    return [name for name, shown in signs.items() if shown]
