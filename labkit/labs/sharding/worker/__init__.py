"""Lab 05, what the workers do: build GPT-2, train it under a strategy, time it, profile it, remember its memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.labs.sharding.plan import Ladder, Links, Profiles, Timeline, Trial
from labkit.labs.sharding.worker.overlap import profile
from labkit.labs.sharding.worker.trials import compare, remembered, time_collective
from labkit.worker.data import batches
from labkit.worker.gpt import Gpt, samples
from labkit.worker.ledger import keep_ledgers
from labkit.worker.settings import forget, prepare, set_precision
from labkit.worker.trainer import Batch, Trainer, adamw, time_steps

__all__ = ["measure", "prepare"]

LEARNING_RATE = 3e-4
EPOCH = 8  # global batches before samples come again


def measure(worker: Worker, point) -> None:
    """Measure one point on the ranks that it uses; the others wait where all points end."""
    group = worker.state[point.ranks]
    if worker.rank >= point.ranks:
        return
    if isinstance(worker.plan, Links):
        time_collective(worker, point, group)
        return
    set_precision(point.precision)
    (compare if isinstance(worker.plan, Trial) else run_point)(worker, point, group)
    forget(worker)


def run_point(worker: Worker, point, group: dist.ProcessGroup | None) -> None:
    """Build the model under its strategy and measure what the plan asks for."""
    trainer = Trainer(
        Gpt(worker.plan, point, worker.device),
        point.strategy,
        group,
        worker.device,
        adamw(LEARNING_RATE, point.precision, point.fused),
        synced=point.synced,
    )
    some = feed(worker, point)
    if isinstance(worker.plan, Profiles):
        profile(worker, trainer, some, group)
    elif isinstance(worker.plan, Timeline):
        for _ in range(worker.plan.warm_ups):
            trainer.step(some())
        remember(worker, trainer, some)
    else:
        time_steps(worker, trainer, some, group)
        if point.seed == worker.plan.seeds[0] and not isinstance(worker.plan, Ladder):
            keep_ledgers(worker, trainer, some())


def feed(worker: Worker, point) -> Callable[[], list[Batch]]:
    """Give a function that gives this rank's micro-batches of the next step."""
    tensors = samples(worker.plan, EPOCH * point.batch, point.seed)
    data = batches(tensors, point.batch, worker.rank, point.ranks, point.seed)
    return lambda: list(zip(*(part.split(point.micro_batch) for part in next(data)[:-1]), strict=True))


def remember(worker: Worker, trainer: Trainer, some: Callable) -> None:
    """Keep the allocator's history over some steps, phase by phase."""
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append(trainer.forward(some()[0]))

    phases = [("forward", forward), ("backward", lambda: trainer.backward(losses.pop())), ("optimizer", trainer.update)]
    remembered(worker, phases, worker.plan.iterations)
