"""What matters of lab 13: images per second, what each of two GPUs keeps, and whether an epoch is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, Shown, figure, misjudged, most_per_second, repeats, workers
from labkit.theory.resnet import CLASSES, flop_per_image
from lessons.scaling import tables
from lessons.scaling.theory import ddp_buckets, model

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _images(which: int) -> Shown:
    """Return how a run gives the rate with its largest (-1) or smallest (0) batch per GPU."""

    def measured(run: Run) -> Measured | None:
        plan = run.plan
        gpu_batch = sorted(plan.batches)[which]
        steps = repeats(run, "step_ms", strategy="ddp", ranks=plan.gpus, gpu_batch=gpu_batch)
        time = Measured.of(steps, f"{gpu_batch} images per GPU, width {plan.width}, float32, {workers(run)}")
        flop = flop_per_image(plan.width, plan.blocks, CLASSES)
        return time and time.rate(1e3 * gpu_batch * plan.gpus, most_per_second(run, flop, "float32", plan.gpus))

    return measured


def _efficiency(loader: str) -> Shown:
    """Return how a run shows which part of one GPU's rate each of two keeps, 512 images each."""

    def measured(run: Run) -> Measured | None:
        table = tables.scaling(run, loader)
        for row in table[(table["law"] == "weak") & (table["ranks"] == 2) & (table["fixed"] == 512)].itertuples():
            return figure(run, float(row.efficiency), float(row.spread_efficiency))
        return None

    return measured


def _rest(run: Run) -> Measured:
    """Return the largest part of an epoch that no part explains, in percent."""
    return figure(run, 100 * float(tables.parts(run)["rest_share"].max()))


def _apart(run: Run) -> Measured:
    """Return by how many points of a step the three ways of measuring an all-reduce differ at most."""
    table = tables.exchange(run)
    return figure(run, float(table.loc[table["ranks"] > 1, "apart_points"].max()))


def _wrong_gradients(run: Run) -> Measured:
    """Return how many settings send other bytes, or other calls, than the formula."""
    table, network = tables.exchange(run), (run.plan.width, run.plan.blocks)
    wrong = (table["sent_bytes"] != 4 * model(*network).parameters) | (table["calls"] != ddp_buckets(*network))
    return figure(run, float(wrong.sum()))


FIGURES = {
    "large_batch": _images(-1),
    "small_batch": _images(0),
    "device_loader": _efficiency("device"),
    "host_loader": _efficiency("host"),
    "rest": _rest,
    "apart": _apart,
    "wrong_gradients": _wrong_gradients,
    "misjudged": misjudged(tables.symptoms, tables.caught),
}
