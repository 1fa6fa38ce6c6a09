"""What the node's card shows of lab 10: the bucketed step by hand, and torch's DDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SHOWN = {"bucketed": "buckets by hand", "ddp": "torch's DDP"}


def _step(strategy: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        plan = run.plan
        model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
        return Measured.of(
            repeats(run, "step_ms", strategy=strategy, ranks=plan.gpus), f"{model}, {plan.precision}, {workers(run)}"
        )

    return measure


KEY_FIGURES = tuple(
    KeyFigure(f"training step, {name}", "ms", "implementations", _step(key), LOWER) for key, name in _SHOWN.items()
)
