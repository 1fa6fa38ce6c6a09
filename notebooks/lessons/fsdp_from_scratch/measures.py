"""What matters of lab 15: the step of our sharded units, alone and beside torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure_of, repeats, workers
from lessons.fsdp_from_scratch.tables import steps

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SETTING = {"strategy": "ours", "unit": "block", "prefetch": 1, "precision": "bfloat16"}


def ours(run: Run) -> Measured | None:
    plan = run.plan
    model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
    return Measured.of(repeats(run, "step_ms", **_SETTING), f"{model}, bfloat16, {workers(run)}")


def over_torch(run: Run) -> Measured | None:
    return figure_of(run, steps(run), "over_torch", **_SETTING) if run.plan.size == "full" else None
