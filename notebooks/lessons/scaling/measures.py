"""What matters of lab 13: images per second, what each of two GPUs keeps, and whether an epoch is explained."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, figure_of, most_per_second, repeats, workers
from labkit.theory.cifar10 import CLASSES
from lessons.scaling import tables
from lessons.scaling.theory import flop_per_image

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _images(run: Run, which: int) -> Measured | None:
    """Return the rate with the largest (-1) or smallest (0) batch per GPU."""
    plan = run.plan
    gpu_batch = sorted(plan.batches)[which]
    steps = repeats(run, "step_ms", strategy="ddp", ranks=plan.gpus, gpu_batch=gpu_batch)
    time = Measured.of(steps, f"{gpu_batch} images per GPU, width {plan.width}, float32, {workers(run)}")
    flop = flop_per_image(plan.width, plan.blocks, CLASSES)
    return time and time.rate(1e3 * gpu_batch * plan.gpus, most_per_second(run, flop, "float32", plan.gpus))


def _efficiency(run: Run, loader: str) -> Measured | None:
    """Return which part of one GPU's rate each of two keeps, 512 images each."""
    return figure_of(run, tables.scaling(run, loader), "efficiency", law="weak", ranks=2, fixed=512)


def _apart(run: Run) -> Measured:
    """Return by how many points of a step the three ways of measuring an all-reduce differ at most."""
    table = tables.exchange(run)
    return figure(run, table.loc[table["ranks"] > 1, "apart_points"].max())


FIGURES = {
    "large_batch": partial(_images, which=-1),
    "small_batch": partial(_images, which=0),
    "device_loader": partial(_efficiency, loader="device"),
    "host_loader": partial(_efficiency, loader="host"),
    "rest": lambda run: figure(run, 100 * tables.parts(run)["rest_share"].max()),
    "apart": _apart,
}
