"""What the node's card shows of lab 13: images per second of ResNet-18 under DDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import KeyFigure, Measured, most_per_second, repeats, workers
from labkit.theory.images import CLASSES
from labkit.theory.resnet import flop_per_image

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _images(which: int) -> Callable[[Run], Measured | None]:
    """Return how a run gives the rate with its largest (-1) or smallest (0) batch per GPU."""

    def measure(run: Run) -> Measured | None:
        plan = run.plan
        gpu_batch = sorted(plan.batches)[which]
        steps = repeats(run, "step_ms", strategy="ddp", ranks=plan.gpus, gpu_batch=gpu_batch)
        time = Measured.of(steps, f"{gpu_batch} images per GPU, width {plan.width}, float32, {workers(run)}")
        flop = flop_per_image(plan.width, plan.blocks, CLASSES)
        return time and time.rate(1e3 * gpu_batch * plan.gpus, most_per_second(run, flop, "float32", plan.gpus))

    return measure


KEY_FIGURES = (
    KeyFigure("ResNet-18, DDP, large batch", "images/s", "communication", _images(-1)),
    KeyFigure("ResNet-18, DDP, small batch", "images/s", "communication", _images(0), by_host=True),
)
