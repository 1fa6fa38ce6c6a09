"""Lab 04, what the workers do: build BERT, train it under a strategy, time the steps and keep the ledgers."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.bert import model_knobs, samples
from labkit.worker.counting import record_ledgers
from labkit.worker.settings import prepare, release_memory, set_precision
from labkit.worker.trainer import Batch, adamw, batches, time_steps
from lessons.ddp_fsdp.plan import Layers, Trial
from lessons.ddp_fsdp.worker.bert import Bert
from lessons.ddp_fsdp.worker.trials import make_trainer, try_variant
from lessons.ddp_fsdp.worker.watched import try_layers

__all__ = ["measure", "prepare"]

_LEARNING_RATE = 1e-4
_EPOCH = 16  # global batches before samples come again


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point on the ranks that it uses; the others wait until the point ends."""
    set_precision(point.precision)
    group = worker.state[point.ranks]
    if isinstance(worker.plan, Trial):
        try_variant(worker, point, group)
    elif worker.rank < point.ranks and isinstance(worker.plan, Layers):
        try_layers(worker, point, group)
    elif worker.rank < point.ranks:
        _run_point(worker, point, group)
    release_memory(worker)


def _run_point(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Build the model, time its steps, and for the first seed keep the ledgers."""
    plan = worker.plan
    model = Bert(plan, point.seed, worker.device, point.precision, **model_knobs(point))
    if point.compiled:
        model.forward = torch.compile(model.forward, dynamic=False)  # one graph; hooks stay outside
    trainer = make_trainer(model, point, group, worker.device, adamw(_LEARNING_RATE, point.precision, point.fused))
    data = batches(samples(plan, _EPOCH * point.batch, point.seed), point.batch, worker.rank, point.ranks, point.seed)

    def next_batches() -> list[Batch]:
        return [tuple(next(data)[:-1])]

    time_steps(worker, trainer, next_batches, group)
    if point.seed == plan.seeds[0]:
        record_ledgers(worker, trainer, next_batches())
    trainer.close()
