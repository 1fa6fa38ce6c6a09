"""Lab 17, what the worker does: train GPT-2 rung by rung, time the head's loss, and try optimizers."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.engine.worker import Worker
from labkit.worker.counting import record_ledgers
from labkit.worker.gpt import Gpt, samples
from labkit.worker.settings import prepare, release_memory, set_precision
from labkit.worker.trainer import Trainer, adamw, batch_source, time_steps
from lessons.one_gpu.plan import Batches, Head, Trial
from lessons.one_gpu.worker.head import time_head
from lessons.one_gpu.worker.optimizers import try_optimizer

__all__ = ["measure", "prepare"]

_LEARNING_RATE = 3e-4


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point on the first rank; another one, if there is any, waits where all points end."""
    if worker.rank:
        return
    if isinstance(worker.plan, Head | Trial):
        (time_head if isinstance(worker.plan, Head) else try_optimizer)(worker, point)
    else:
        set_precision(point.precision)
        (_run_by_hand if point.compiled.startswith("by hand") else _run_rung)(worker, point)
    release_memory(worker)


def _run_rung(worker: Worker, point: SimpleNamespace) -> None:
    """Time the model's steps; more and more sequences have their memory counted, too."""
    model, optimizer = Gpt(worker.plan, point, worker.device), adamw(_LEARNING_RATE, point.precision, point.fused)
    trainer = Trainer(model, "single", worker.state[1], worker.device, optimizer)
    next_batches = batch_source(worker, point, samples)
    time_steps(worker, trainer, next_batches, worker.state[1])
    if isinstance(worker.plan, Batches) and point.seed == worker.plan.seeds[0]:
        record_ledgers(worker, trainer, next_batches())


def _run_by_hand(worker: Worker, point: SimpleNamespace) -> None:
    """Time the step that is written out, from the same weights and on the same samples."""
    from lessons.one_gpu.worker.by_hand import ByHand  # Triton is needed for this alone

    model, in_float8 = Gpt(worker.plan, point, worker.device), point.compiled.endswith("float8")
    trainer = ByHand(model, point.micro_batch, _LEARNING_RATE, in_float8=in_float8)
    if in_float8:
        worker.record(entry="gradients", away=trainer.away_in_float8(batch_source(worker, point, samples)()))
    time_steps(worker, trainer, batch_source(worker, point, samples), worker.state[1])
