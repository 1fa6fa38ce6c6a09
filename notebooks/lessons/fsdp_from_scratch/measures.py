"""What matters of lab 15: the step of our sharded units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run


def step(run: Run, strategy: str) -> Measured | None:
    plan = run.plan
    times = repeats(run, "step_ms", strategy=strategy, unit="block", prefetch=1, precision="bfloat16")
    model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
    return Measured.of(times, f"{model}, bfloat16, {workers(run)}")
