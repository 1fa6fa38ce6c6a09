"""What the node's card shows of lab 07: both passes of the largest model on one GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, repeats

if TYPE_CHECKING:
    from labkit.engine.run import Run

_LARGEST, _PHASES = "2.7b", ("forward", "backward")


def _pass(phase: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        times = repeats(run, "ms", model=_LARGEST, precision="bfloat16", phase=phase)
        return Measured.of(times, f"{run.plan.samples} × {run.plan.sequence} tokens, bfloat16 autocast")

    return measure


KEY_FIGURES = tuple(
    KeyFigure(f"{phase}, {_LARGEST}", "ms", "speed", _pass(phase), LOWER, least_gpus=1, by_host=True)
    for phase in _PHASES
)
