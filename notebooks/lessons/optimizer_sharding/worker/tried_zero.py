"""An `update_all` that somebody wrote, in its place in ZeroOptimizer, tried on some ranks, also where it is graded."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from lessons.optimizer_sharding.worker.late import LateCalls
from lessons.optimizer_sharding.worker.zero import with_update_all

_BUCKET_MIB = 48 / 2**20  # twelve numbers
_STEPS = 3


class _NotedWork:
    """A gather that was started; waiting for it is an event."""

    def __init__(self, work: Any, events: list):
        self._work, self._events = work, events

    def wait(self) -> None:
        self._events.append("wait")
        self._work.wait()


def drive(update_all: Callable, world: SimpleNamespace, ranks: int, sizes: list[int], seed: int) -> dict[str, Any]:
    """Return what three steps of SGD with momentum leave on this rank.

    `sizes` are the parameters' numbers of elements; half of them train at another rate, and in the second step the
    last has no gradient. `start`: all parameters in one list; `weights`: the same after each step. `events`: of each
    step, in order, [name, bytes] of a collective, "update" of a bucket, "wait" for what `send` started.
    """
    shared, own = (torch.Generator().manual_seed(100 * seed + number) for number in (99, world.rank))
    parameters = [torch.nn.Parameter(torch.randn(size, generator=shared)) for size in sizes]
    start = _numbers(parameters)
    half = len(parameters) // 2
    groups = [{"params": parameters[:half], "lr": 0.1}, {"params": parameters[half:]}]
    calls = LateCalls(world)

    class Watched(with_update_all(update_all)):  # type: ignore[misc]
        def update_part(self, bucket, mean):
            super().update_part(bucket, mean)
            calls.events.append("update")

        def send(self, bucket, flat):
            return _NotedWork(super().send(bucket, flat), calls.events)

    optimizer = Watched(groups, torch.optim.SGD, world.group, bucket_mib=_BUCKET_MIB, lr=0.5, momentum=0.7)
    weights, events = [], []
    for step in range(_STEPS):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=own)
        if step == 1:
            parameters[-1].grad = None
        calls.events = []
        with calls:
            optimizer.step()
        weights.append(_numbers(parameters))
        events.append(calls.events)
    return {"start": start, "weights": weights, "events": events}


def _numbers(parameters: list[torch.nn.Parameter]) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in parameters]).tolist()
