"""Lab 04, what the workers do: build BERT, train it under a strategy, time the steps and keep the ledgers."""

from __future__ import annotations

import gc
import time

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.labs.ddp_fsdp.plan import Trial
from labkit.labs.ddp_fsdp.worker.data import batches
from labkit.labs.ddp_fsdp.worker.ledger import keep_ledgers
from labkit.labs.ddp_fsdp.worker.models import Bert, samples
from labkit.labs.ddp_fsdp.worker.training import Trainer, adamw, train
from labkit.labs.ddp_fsdp.worker.trials import compare
from labkit.labs.pipeline.worker import prepare, set_precision
from labkit.labs.pipeline.worker.clocks import fence

__all__ = ["measure", "prepare"]

LEARNING_RATE = 1e-4
NCCL_LOOKS = 0.25  # seconds: twice as long as NCCL's watchdog takes to let the last collectives' tensors go
EPOCH = 16  # global batches before samples come again


def measure(worker: Worker, point) -> None:
    """Measure one point on the ranks that it uses; the others wait where all points end."""
    set_precision(point.precision)
    group = worker.state[point.ranks]
    if isinstance(worker.plan, Trial):
        compare(worker, point, group)
    elif worker.rank < point.ranks:
        run_point(worker, point, group)
    forget(worker)


def forget(worker: Worker) -> None:
    """Give the point's memory back, so that the next one starts as the first did."""
    gc.collect()
    if worker.device.type == "cuda":
        worker.synchronize()
        time.sleep(NCCL_LOOKS)
        torch.cuda.empty_cache()


def run_point(worker: Worker, point, group: dist.ProcessGroup | None) -> None:
    """Build the model, time its steps, and for the first seed keep the ledgers."""
    plan = worker.plan
    model = Bert(plan, point.seed, worker.device, point.precision)
    if point.compiled:
        model.forward = torch.compile(model.forward, dynamic=False)  # one graph; hooks stay outside
    trainer = train(model, point, group, worker.device, adamw(LEARNING_RATE, point.precision, point.fused))
    data = batches(samples(plan, EPOCH * point.batch, point.seed), point.batch, worker.rank, point.ranks, point.seed)
    time_steps(worker, trainer, lambda: [next(data)[:-1]], group)
    if point.seed == plan.seeds[0]:
        keep_ledgers(worker, trainer, [next(data)[:-1]])
    trainer.close()


def time_steps(worker: Worker, trainer: Trainer, some, group: dist.ProcessGroup | None) -> None:
    """Time whole steps, all ranks starting together, and append a row each: time, loss, and the memory so far."""
    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for timing in worker.time(lambda: trainer.step(some()), **often, before=lambda: fence(group)):
        worker.record(
            entry="step", iteration=timing.iteration, warm_up=timing.warm_up, step_ms=1e3 * timing.seconds,
            loss=timing.result,
        )  # fmt: skip
