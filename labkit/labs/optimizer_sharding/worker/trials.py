"""Sharded optimizers with one thing wrong in each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.labs.optimizer_sharding.worker.equality import Side, differences
from labkit.labs.optimizer_sharding.worker.sharded import ShardedOptimizer


class Nothing:
    """Stands for work that is not there."""

    def wait(self) -> None:
        """Wait for nothing."""


class ShardsNothing(ShardedOptimizer):
    """Has every rank own all elements: right, and of no use."""

    def cuts(self, parameters):
        total = sum(parameter.numel() for parameter in parameters)
        return [0] * (self.rank + 1) + [total] * (self.ranks - self.rank)

    def send(self, bucket, flat):
        return Nothing()


class SendsNothing(ShardedOptimizer):
    """Updates this rank's elements and leaves it at that."""

    @torch.no_grad()
    def step(self, closure=None):
        for bucket in self.buckets:
            self.update(bucket)


class ByCount(ShardedOptimizer):
    """Gives every rank as many parameters of a bucket, whatever their size; parts differ, so each is broadcast."""

    def cuts(self, parameters):
        ends = [0]
        for parameter in parameters:
            ends.append(ends[-1] + parameter.numel())
        each = -(-len(parameters) // self.ranks)
        return [ends[min(rank * each, len(parameters))] for rank in range(self.ranks + 1)]

    def send(self, bucket, flat):
        for rank, (begin, end) in enumerate(zip(bucket.cuts, bucket.cuts[1:], strict=False)):
            if end > begin:
                dist.broadcast(flat[begin:end], rank, group=self.process_group)
        return Nothing()


class OwnPart(ShardedOptimizer):
    """Gathers parameters, but no states for its state_dict."""

    def send(self, bucket, flat):
        return super().send(bucket, flat) if flat is bucket.flat else Nothing()


class StaleRate(ShardedOptimizer):
    """Asks for a group's learning rate once, when the bucket is made."""

    def rates(self, bucket: Any):
        if not hasattr(bucket, "rates"):
            bucket.rates = super().rates(bucket)
        return bucket.rates


VARIANTS = {
    "right": ShardedOptimizer,
    "shards_nothing": ShardsNothing,
    "sends_nothing": SendsNothing,
    "by_count": ByCount,
    "own_part": OwnPart,
    "stale_rate": StaleRate,
}


_SAME = 1e-4


def attempt(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row: as lab's equality, and after one step `first_error`; `saved`: the share of a state_dict's moments
    that are those of the optimizer which shards nothing. The learning rate falls every second step.
    """
    ours = Side(worker, point, "sharded", VARIANTS[point.variant])
    right = Side(worker, point, "unsharded")
    start = [weight.detach().clone() for weight in right.model.parameters()]
    ours.step(0)
    right.step(0)
    row = {"first_error": differences(ours, right, start)["error"], "saved": _saved(ours.optimizer, right.optimizer)}
    for number in range(1, worker.plan.steps):
        ours.step(number)
        right.step(number)
    worker.record(entry="trial", **differences(ours, right, start), **row)


def _saved(ours: torch.optim.Optimizer, right: torch.optim.Optimizer) -> float:
    """Return the share of the numbers in the right state_dict that ours has, too."""
    found, wanted = ours.state_dict()["state"], right.state_dict()["state"]
    same = total = 0
    for number, state in wanted.items():
        for name, value in state.items():
            one = found.get(number, {}).get(name)
            close = torch.isclose(one.to(value), value, _SAME, 0) if torch.is_tensor(one) else torch.zeros(1)
            same, total = same + int(close.sum()), total + value.numel()
    return same / total
