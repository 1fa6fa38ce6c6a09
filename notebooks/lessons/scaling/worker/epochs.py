"""Whole epochs: by the clock, with what they are made of; and trainings of several, with what is learnt."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from operator import eq
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.worker.clocks import fence
from labkit.worker.equality import gather_numbers
from lessons.scaling.theory import YOURS, learning_rate
from lessons.scaling.worker.images import Feed, Images
from lessons.scaling.worker.loop import EpochLoop

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
_TEST_BATCH = 1000


def make_feed(worker: Worker, point: SimpleNamespace, **choice: Any) -> Feed:
    """Return the batches of this rank, as the point's loader brings them."""
    state = worker.state
    loader: dict[str, Any] = {"host": state.host, "processes": worker.plan.processes} if point.loader == "host" else {}
    who = (worker.rank, point.ranks, worker.device)
    return Feed(state.training, point.gpu_batch, *who, seed=point.seed, **loader, **choice)


def time_epochs(worker: Worker, point: SimpleNamespace) -> None:
    """Time epochs after a warm-up; append a row each: seconds, steps, images and the parts in ms."""
    plan, loop, batches = worker.plan, EpochLoop(worker, point), make_feed(worker, point)
    repeats = max(1, min(plan.most_repeats, plan.least_steps // max(1, batches.steps)))
    for iteration in range(1 + repeats):
        warm_up = iteration == 0
        limit = min(plan.first_steps, batches.steps) if warm_up else batches.steps
        seconds, parts = timed_epoch(worker, loop, islice(batches.epoch(iteration), limit))
        worker.record(
            entry="epoch",
            iteration=iteration,
            warm_up=warm_up,
            seconds=seconds,
            steps=limit,
            images=limit * point.gpu_batch,
            **{f"{part}_ms": ms for part, ms in parts.items()},
        )
    batches.close()


def timed_epoch(worker: Worker, loop: EpochLoop, batches: Batches) -> tuple[float, dict[str, float]]:
    """Return the seconds of a step per batch, all ranks starting together, and the ms of each part."""
    fence(worker.state.groups[loop.point.ranks])
    with worker.clock() as timing:
        loop.begin()
        for pixels, labels in batches:
            loop.step(pixels, labels)
    return timing.seconds, loop.ended()


def learn(worker: Worker, point: SimpleNamespace) -> None:
    """Train and append a row per epoch: mean loss and accuracy on the images as trained, and on the test images.

    Of the image numbers of all ranks: how many are `dealt`, how many of them differ (`seen`), and which share stands
    where it stood in the epoch before (`repeated`).
    """
    shard = load_function(Path(worker.plan.yours), "shard") if point.variant == YOURS else None
    loop, batches = EpochLoop(worker, point), make_feed(worker, point, reshuffle=point.reshuffle, shard=shard)
    group, before = worker.state.groups[point.ranks], []
    schedule = {"steps": worker.plan.epochs * batches.steps, "rate": point.rate}
    schedule["warm_up_steps"] = round(point.warm_up_epochs * batches.steps)
    for epoch in range(worker.plan.epochs):
        dealt = gather_numbers(torch.tensor(batches.order(epoch)), point.ranks, group)
        fence(group)
        start = time.perf_counter()
        totals = train_epoch(loop, batches, epoch, schedule)
        dist.all_reduce(totals, group=group)
        count = point.ranks * batches.steps * point.gpu_batch
        seconds = time.perf_counter() - start
        if worker.rank == 0:
            loss, right = totals.tolist()
            tested = evaluate(loop, worker.state.testing)
            worker.record(
                entry="training",
                iteration=epoch,
                epoch=epoch,
                steps=batches.steps,
                seconds=seconds,
                train_loss=loss / (point.ranks * batches.steps),
                train_percent=100 * right / count,
                test_percent=100 * tested / len(worker.state.testing.labels),
                dealt=len(dealt),
                seen=len({*dealt}),
                repeated=fmean(map(eq, before, dealt)) if before else None,
            )
        before = dealt


def train_epoch(loop: EpochLoop, batches: Feed, epoch: int, schedule: dict) -> torch.Tensor:
    """Run an epoch; return the sum of the steps' losses and the number of right answers, on the host."""
    totals = torch.zeros(2, device=loop.device)
    for number, (pixels, labels) in enumerate(batches.epoch(epoch), start=epoch * batches.steps):
        loop.set_rate(learning_rate(number, **schedule))
        totals += torch.stack(loop.step(pixels, labels))
    return totals.double().cpu()


@torch.no_grad()
def evaluate(loop: EpochLoop, images: Images) -> int:
    """Return how many of the images this rank's network, as it is, gets right."""
    loop.model.eval()
    right = 0
    for pixels, labels in zip(images.pixels.split(_TEST_BATCH), images.labels.split(_TEST_BATCH), strict=True):
        ready, labels = loop.ready(pixels, labels)
        right += int((loop.model(ready).argmax(1) == labels).sum())
    loop.model.train()
    return right
