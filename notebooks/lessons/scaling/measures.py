"""What matters of lab 13: images per second, what each of two GPUs keeps, and whether an epoch is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure_of, most_per_second, repeats, workers
from labkit.theory.cifar10 import CLASSES
from lessons.scaling import tables
from lessons.scaling.theory import flop_per_image

if TYPE_CHECKING:
    from labkit.engine.run import Run


def images(run: Run, which: int) -> Measured | None:
    """Return the rate with the largest (-1) or smallest (0) batch per GPU."""
    plan = run.plan
    gpu_batch = sorted(plan.batches)[which]
    steps = repeats(run, "step_ms", strategy="ddp", ranks=plan.gpus, gpu_batch=gpu_batch)
    time = Measured.of(steps, f"{gpu_batch} images per GPU, width {plan.width}, float32, {workers(run)}")
    flop = flop_per_image(plan.width, plan.blocks, CLASSES)
    return time and time.rate(1e3 * gpu_batch * plan.gpus, most_per_second(run, flop, "float32", plan.gpus))


def efficiency(run: Run, loader: str) -> Measured | None:
    """Return which part of one GPU's rate each of two keeps, 512 images each."""
    return figure_of(run, tables.scaling(run, loader), "efficiency", law="weak", ranks=2, fixed=512)
