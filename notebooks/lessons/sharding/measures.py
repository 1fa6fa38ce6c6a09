"""What matters of lab 05: what each GPU of several keeps of one GPU's speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, repeats, workers

if TYPE_CHECKING:
    from labkit.engine.run import Run


def efficiency(run: Run, strategy: str) -> Measured | None:
    """Return the share of one GPU's rate that each GPU keeps, large batch; None of another model than the report's."""
    if not run.plan.of_the_report:
        return None
    shared = {"load": "large", "ranks": run.plan.gpus}
    alone = Measured.of(repeats(run, "step_ms", load="large", strategy="single"), "")
    steps = repeats(run, "step_ms", strategy=strategy, **shared)
    setting = f"{run.plan.layers} layers, {run.plan.large} samples per GPU, {workers(run)}"
    return Measured.of([100 * alone.value / step for step in steps] if alone else [], setting, 100)
