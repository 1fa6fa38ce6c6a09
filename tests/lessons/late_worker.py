"""A lab for the tests of lab 10's ends: the last rank is late, and the others must not leave without it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from lessons.ddp_from_scratch.plan import Profiles
from lessons.ddp_from_scratch.worker.steps import SteppingLoop, profile

LATE_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Late(Profiles):
    """A point a strategy that sends its gradients during backward: a late `finish` then holds up its flags alone."""

    lab: ClassVar[str] = "late"
    worker: ClassVar[str] = "late_worker"

    strategies: tuple[str, ...] = ("overlapped", "bucketed")


class Unbuffered(nn.Module):
    """A model without buffers: to send rank 0's buffers would keep rank 0 waiting for the others."""

    def __init__(self, vocabulary: int, hidden: int):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, hidden), nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embedding(tokens))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(worker, point) -> None:
    """Append when this rank's last `finish` began, and when the profile was over; then the same of closing."""
    loop = SteppingLoop(worker, point, Unbuffered(worker.plan.vocabulary, worker.plan.hidden).to(worker.device))
    finish, began_s = loop.wrapped.finish, []

    def late_finish() -> None:
        time.sleep(LATE_S * (worker.rank == worker.gpus - 1))
        began_s.append(time.perf_counter())
        finish()

    def step_and_close() -> None:
        loop.step()
        loop.close()

    loop.wrapped.finish = late_finish
    for end, work in (("profile", lambda: profile(worker, loop)), ("close", step_and_close)):
        work()
        worker.record(end=end, began_s=began_s[-1], left_s=time.perf_counter())
        worker.barrier()
