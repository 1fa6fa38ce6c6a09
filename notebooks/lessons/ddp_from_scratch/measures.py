"""What matters of lab 10: the bucketed step, alone and beside torch's DDP."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.measures import Measured, figure_of, repeats, workers
from lessons.ddp_from_scratch.tables import buckets, implementations

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _step(run: Run, strategy: str) -> Measured | None:
    plan = run.plan
    model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
    times = repeats(run, "step_ms", strategy=strategy, ranks=plan.gpus)
    return Measured.of(times, f"{model}, {plan.precision}, {workers(run)}")


def _has_a_goal(run: Run) -> bool:
    """Say whether the run has the plan's usual model and batch: with others there is no goal."""
    return run.plan.samples == type(run.plan).samples and run.plan.size != "middle"


def _over_ddp(run: Run, read: Callable[[Run], pd.DataFrame]) -> Measured | None:
    """Return the smallest ratio of a bucketed step to torch's DDP."""
    rows = read(run).sort_values("over_ddp")
    return figure_of(run, rows, "over_ddp", strategy="bucketed") if _has_a_goal(run) else None


FIGURES = {
    "bucketed": partial(_step, strategy="bucketed"),
    "ddp": partial(_step, strategy="ddp"),
    "step_over_ddp": partial(_over_ddp, read=implementations),
    "best_size_over_ddp": partial(_over_ddp, read=buckets),
}
