"""A method that somebody wrote, in its place in the replicas, tried on some ranks: what gradients it leaves, and when.

Imports nothing of labkit but the replicas: it also runs where an answer is graded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from lessons.ddp_from_scratch.worker.issued import IssueOrder
from lessons.ddp_from_scratch.worker.probe import LEARNING_RATE, Probe, backward_on_rank, samples_of
from lessons.ddp_from_scratch.worker.replicas import Flat, Overlapped

HOLES: dict[str, type] = {"exchange": Flat, "ready": Overlapped}
_STEPS = 2
_LATE_S = 0.05  # what the others have sent before the last rank begins has not arrived


class _NotedWork:
    """An all-reduce that was started; waiting for it is an event."""

    def __init__(self, work: Any, events: list[str | int]):
        self._work, self._events = work, events

    def wait(self) -> None:
        self._events.append("wait")
        self._work.wait()


def yours(hole: str, method: Callable) -> type:
    """Return the class of replicas whose method `hole` this one replaces."""
    return type("Yours", (HOLES[hole],), {hole: method})


def drive(method: Callable, world: SimpleNamespace, ranks: int, hole: str, case: str, seed: int) -> dict[str, Any]:
    """Return what two steps with the method leave on this rank.

    `gradients`: of each step, for each weight a list of numbers or None, as they are when `finish` returns. `events`:
    of each step, in order, "gradient" when one is computed, the bytes of each all-reduce when it is called, and "wait"
    when one that `average` started is waited for.
    """
    model = Probe(case, world.rank, seed)
    wrapped: Any = yours(hole, method)(model, world.group)
    average = wrapped.average
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=LEARNING_RATE)
    gradients, events = [], []
    for step in range(_STEPS):
        parts = [samples_of(case, rank, ranks, seed, step) for rank in range(ranks)]
        time.sleep(_LATE_S * (world.rank == ranks - 1))
        order = IssueOrder(model)
        wrapped.average = lambda tensor, events=order.events: _NotedWork(average(tensor), events)
        with order:
            backward_on_rank(wrapped, case, parts, world.rank)
        for hook in order.hooks:
            hook.remove()
        grads = [weight.grad for weight in weights]
        gradients.append([None if grad is None else grad.double().flatten().tolist() for grad in grads])
        events.append(order.events)
        optimizer.step()
        optimizer.zero_grad()
    wrapped.close()
    return {"gradients": gradients, "events": events}
