"""What matters of lab 10: the bucketed step beside torch's DDP, the calls that it makes, and whether all is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.measures import Measured, Shown, figure, repeats, workers
from lessons.ddp_from_scratch.tables import buckets, equality, implementations, overlap

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _step(strategy: str) -> Shown:
    def measured(run: Run) -> Measured | None:
        plan = run.plan
        model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
        times = repeats(run, "step_ms", strategy=strategy, ranks=plan.gpus)
        return Measured.of(times, f"{model}, {plan.precision}, {workers(run)}")

    return measured


def _over_ddp(read: Callable[[Run], pd.DataFrame]) -> Shown:
    """Return how a run gives the smallest ratio of a bucketed step to torch's DDP."""

    def measured(run: Run) -> Measured | None:
        table = read(run)
        rows = table[(table["strategy"] == "bucketed") & table["over_ddp"].notna()]
        if rows.empty:
            return None
        best = rows.loc[rows["over_ddp"].idxmin()]
        return figure(run, best["over_ddp"], best["spread_over_ddp"])

    return measured


def _unexpected(run: Run) -> Measured:
    """Return how many settings of ours make other calls than theory says."""
    table = overlap(run)
    return figure(run, (~table[table["strategy"] != "ddp"]["equal"].astype(bool)).sum())


def _at_the_usual_batch(measured: Shown) -> Shown:
    """Return the same of runs with the plan's own batch alone: another has no goal."""
    return lambda run: measured(run) if run.plan.samples == type(run.plan).samples else None


def _differing(run: Run) -> Measured:
    return figure(run, (~equality(run)["equal"]).sum())


FIGURES = {
    "bucketed": _step("bucketed"),
    "ddp": _step("ddp"),
    "step_over_ddp": _at_the_usual_batch(_over_ddp(implementations)),
    "best_size_over_ddp": _at_the_usual_batch(_over_ddp(buckets)),
    "unexpected": _at_the_usual_batch(_unexpected),
    "differing": _differing,
}
