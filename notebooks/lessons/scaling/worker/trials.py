"""A short training with its validation, right or with one of the lab's bugs in it."""

from __future__ import annotations

from statistics import fmean
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.equality import gather_numbers
from lessons.scaling.theory import BASE_RATE, scaled_rate
from lessons.scaling.worker.epochs import evaluate, make_feed, train_epoch
from lessons.scaling.worker.images import Images
from lessons.scaling.worker.loop import EpochLoop

# A variant changes one thing: `share` (whether the sampler knows the ranks), `reshuffle` (whether it knows the epoch),
# `one_shard` (rank 0 reports its own part of the test images).
BUGS = {
    "right": {},
    "no_sampler": {"share": False},
    "no_set_epoch": {"reshuffle": False},
    "one_shard": {"one_shard": True},
}


def try_variant(worker: Worker, point: SimpleNamespace) -> None:
    """Append one row: what the ranks trained on, and how much of the test images their accuracy is made of.

    `distinct`: the share of an epoch's images, over all ranks, that differ. `repeated`: the share of the second epoch's
    that stood at the same place in the first. `validated`: the share of the test images behind the accuracy.
    """
    plan, group = worker.plan, worker.state.groups[point.ranks]
    choice = {**BUGS[point.variant]}
    one_shard = choice.pop("one_shard", False)
    loop, batches = EpochLoop(worker, point), make_feed(worker, point, **choice)
    rate = scaled_rate(point.batch, BASE_RATE, point.gpu_batch)
    schedule = {"steps": plan.epochs * batches.steps, "warm_up_steps": batches.steps, "rate": rate}
    orders = []
    for epoch in range(plan.epochs):
        orders.append(gather_numbers(torch.tensor(batches.order(epoch)), point.ranks, group))
        train_epoch(loop, batches, epoch, schedule)
    tested = _validation_count(worker, loop, point, one_shard, group)
    worker.record(
        entry="trial",
        iteration=0,
        distinct=len({*orders[0]}) / len(orders[0]),
        repeated=fmean(first == second for first, second in zip(orders[0], orders[1], strict=True)),
        validated=tested / len(worker.state.testing.labels),
    )


def _validation_count(
    worker: Worker, loop: EpochLoop, point: SimpleNamespace, one_shard: bool, group: dist.ProcessGroup | None
) -> int:
    """Evaluate this rank's part of the test images; return how many images the accuracy is made of."""
    pixels, labels = (part[worker.rank :: point.ranks] for part in worker.state.testing)
    counts = torch.tensor([evaluate(loop, Images(pixels, labels)), len(labels)])
    if not one_shard:
        dist.all_reduce(counts, group=group)
    return int(counts[1])
