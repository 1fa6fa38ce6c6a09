"""Lab 05, what the workers do: build GPT-2, train it under a strategy, time it, profile it, remember its memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.allocations import record_allocations
from labkit.worker.counting import record_ledgers
from labkit.worker.gpt import Gpt, samples
from labkit.worker.settings import prepare, release_memory, set_precision
from labkit.worker.trainer import Batch, Trainer, adamw, batch_source, time_steps
from lessons.sharding.plan import Links, Profiles, Timeline, Trial
from lessons.sharding.worker.overlap import profile
from lessons.sharding.worker.trials import time_collective, try_variant
from lessons.sharding.worker.yours import YourTrainer

__all__ = ["measure", "prepare"]

_LEARNING_RATE = 3e-4


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point on the ranks that it uses; the others wait where all points end."""
    group = worker.state[point.ranks]
    if worker.rank >= point.ranks:
        return
    if isinstance(worker.plan, Links):
        time_collective(worker, point, group)
        return
    set_precision(point.precision)
    (try_variant if isinstance(worker.plan, Trial) else _run_point)(worker, point, group)
    release_memory(worker)


def _run_point(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Build the model under its strategy and measure what the plan asks for."""
    model, optimizer = Gpt(worker.plan, point, worker.device), adamw(_LEARNING_RATE, point.precision, point.fused)
    if point.synced == "yours":
        trainer = YourTrainer(model, worker.plan.yours, group, worker.device, optimizer)
    else:
        trainer = Trainer(model, point.strategy, group, worker.device, optimizer, synced=point.synced)
    next_batches = batch_source(worker, point, samples)
    if isinstance(worker.plan, Profiles):
        profile(worker, trainer, next_batches, group)
    elif isinstance(worker.plan, Timeline):
        for _ in range(worker.plan.warm_ups):
            trainer.step(next_batches())
        _record_phases(worker, trainer, next_batches)
    else:
        time_steps(worker, trainer, next_batches, group)
        if point.seed == worker.plan.seeds[0]:
            record_ledgers(worker, trainer, next_batches())


def _record_phases(worker: Worker, trainer: Trainer, next_batches: Callable[[], list[Batch]]) -> None:
    """Keep the allocator's history over some steps, phase by phase."""
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append(trainer.forward(next_batches()[0]))

    phases = [("forward", forward), ("backward", lambda: trainer.backward(losses.pop())), ("optimizer", trainer.update)]
    record_allocations(worker, phases, worker.plan.iterations)
