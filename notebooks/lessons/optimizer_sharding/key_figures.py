"""What the node's card shows of lab 11: a step with the sharded optimizer, and with torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SHOWN = {"sharded": "the lab's sharded AdamW", "zero_redundancy": "torch's ZeroRedundancyOptimizer"}


def _step(way: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        plan = run.plan
        steps = repeats(run, "ms", way=way, optimizer="adamw", kernel="foreach", part="step")
        return Measured.of(steps, f"{plan.layers} layers of {plan.hidden}, foreach, {workers(run)}")

    return measure


KEY_FIGURES = tuple(
    KeyFigure(f"training step, {name}", "ms", "steps", _step(key), LOWER) for key, name in _SHOWN.items()
)
