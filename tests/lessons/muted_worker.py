"""A lab for the tests of lab 05's overlap: gradients with their communication, without it, and with it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labkit.worker.collectives import CollectiveCounter
from labkit.worker.equality import mean_over_ranks
from labkit.worker.gpt import Gpt, samples
from labkit.worker.settings import prepare
from labkit.worker.strategies import full_tensor
from labkit.worker.trainer import Trainer, adamw, batch_source
from lessons.sharding.plan import Profiles
from lessons.sharding.worker.overlap import drop_gradients_and_wait, without_communication

__all__ = ["Muted", "measure", "prepare"]


@dataclass(frozen=True, kw_only=True)
class Muted(Profiles):
    """A point a strategy, as Profiles has it."""

    lab: ClassVar[str] = "muted"
    worker: ClassVar[str] = "muted_worker"


def measure(worker, point) -> None:
    model = Gpt(worker.plan, point, worker.device)
    trainer = Trainer(model, point.strategy, None, worker.device, adamw(1e-3, "float32", True))
    batch = batch_source(worker, point, samples)()

    def gradients(entry: str) -> None:
        drop_gradients_and_wait(trainer, None)
        with CollectiveCounter() as sent:
            loss = trainer.gradients(batch)
        length = sum(full_tensor(weight.grad).norm().item() ** 2 for weight in trainer.weights())
        worker.record(entry=entry, calls=sum(sent.calls.values()), loss=mean_over_ranks(loss, None), length=length)

    for _ in range(2):  # DDP agrees on its buckets' order once, ahead of the second forward
        trainer.gradients(batch)
    gradients("before")
    with without_communication(trainer):
        gradients("muted")
    gradients("after")
