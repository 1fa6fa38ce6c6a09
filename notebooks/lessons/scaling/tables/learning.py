"""Rows of whole trainings → what was learnt, with spread over seeds, and which differences are resolved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import like
from labkit.tables.rows import entries
from lessons.scaling.tables.epochs import of_images
from lessons.scaling.theory import GUESSING

if TYPE_CHECKING:
    from labkit.engine.run import Run

MEASURED = ("test_percent", "train_percent", "train_loss")
PAIRS = (
    ("large", "reference"),
    ("large", "one_gpu"),
    ("unscaled", "large"),
    ("no_warm_up", "large"),
    ("same_order", "large"),
    ("sync_bn", "large"),
)


def accuracy(run: Run) -> pd.DataFrame:
    """Return one row per training, after its last epoch: mean over the seeds and standard deviation of MEASURED.

    Columns: variant, ranks, gpu_batch, batch, rate, warm_up_epochs, steps (in all), seeds, at_chance (seeds that learnt
    no more than guessing gives), seconds (of all epochs, the median over seeds), then mean and `std_…` of each. A
    standard deviation of one seed is NaN.
    """
    rows = entries(run, "training")
    knobs = ["variant", "ranks", "gpu_batch", "batch", "rate", "warm_up_epochs"]
    seconds = rows.groupby(["variant", "seed"], sort=False)[["seconds", "steps"]].sum()
    last = rows[rows["epoch"] == rows["epoch"].max()]
    grouped = last.groupby(knobs, sort=False)
    table = grouped[list(MEASURED)].mean()
    for name in MEASURED:
        table[f"std_{name}"] = grouped[name].std()
    table["seeds"] = grouped.size()
    table["at_chance"] = grouped["test_percent"].agg(lambda percent: (percent < GUESSING + 5).sum())
    table = table.reset_index()
    by_variant = seconds.groupby("variant").median()
    table["seconds"] = table["variant"].map(by_variant["seconds"])
    table["steps"] = table["variant"].map(by_variant["steps"]).astype(int)
    return of_images(table, run)


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each of PAIRS the difference of test accuracies in points, and whether it is resolved.

    `interval` is twice the standard error of the difference; NaN of single seeds, where nothing is resolved.
    """
    known = table.set_index("variant")
    rows = []
    for variant, other in PAIRS:
        if {variant, other} <= {*known.index}:
            one, two = known.loc[variant], known.loc[other]
            points = one["test_percent"] - two["test_percent"]
            interval = 2 * math.sqrt(sum(side["std_test_percent"] ** 2 / side["seeds"] for side in (one, two)))
            rows.append((variant, other, points, interval, abs(points) > interval))
    return like(pd.DataFrame(rows, columns=["variant", "other", "points", "interval", "resolved"]), table)
