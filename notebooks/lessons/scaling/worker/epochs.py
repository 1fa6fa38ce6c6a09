"""Whole epochs by the clock, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch

from labkit.engine.worker import Worker
from labkit.worker.clocks import fence
from lessons.scaling.worker.images import Feed
from lessons.scaling.worker.loop import EpochLoop

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


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
