"""What matters of lab 10: the bucketed step, alone and beside torch's DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure_of, repeats, workers
from lessons.ddp_from_scratch import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run


def step(run: Run, strategy: str) -> Measured | None:
    plan = run.plan
    model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
    times = repeats(run, "step_ms", strategy=strategy, ranks=plan.gpus)
    return Measured.of(times, f"{model}, {plan.precision}, {workers(run)}")


def over_ddp(run: Run, of: str) -> Measured | None:
    """Return the smallest ratio of a bucketed step to torch's DDP, of a table; with another batch there is no goal."""
    rows = getattr(tables, of)(run).sort_values("over_ddp")
    usual = run.plan.samples == type(run.plan).samples
    return figure_of(run, rows, "over_ddp", strategy="bucketed") if usual else None
