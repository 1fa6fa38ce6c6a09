"""What matters of lab 16: the step of our split layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run


def step(run: Run, strategy: str) -> Measured | None:
    plan = run.plan
    model = f"{plan.layers} layers of {plan.hidden}, {plan.samples * plan.gpus} × {plan.sequence} tokens"
    return Measured.of(repeats(run, "step_ms", strategy=strategy), f"{model}, {workers(run)}")
