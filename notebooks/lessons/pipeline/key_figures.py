"""What the node's card shows of lab 03: BERT over all GPUs, streaming and training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import KeyFigure, Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run

_MODES = {"training": "training steps", "streaming": "forward only, streaming"}


def _samples(mode: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        plan = run.plan
        steps = repeats(run, "step_ms", mode=mode, ranks=plan.gpus)
        setting = f"batch {plan.batch}, {plan.sequence} tokens, {plan.layers} layers, float32, {workers(run)}"
        time = Measured.of(steps, setting)
        return time and time.rate(1e3 * plan.batch)

    return measure


KEY_FIGURES = tuple(
    KeyFigure(f"BERT in stages, {name}", "samples/s", "gpus", _samples(mode), by_host=mode == "streaming")
    for mode, name in _MODES.items()
)
