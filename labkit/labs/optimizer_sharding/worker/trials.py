"""A sharded optimizer, right or with a bug, beside the one that shards nothing: what gives it away."""

from __future__ import annotations

import torch

from labkit.engine.worker import Worker
from labkit.labs.optimizer_sharding.worker.equality import Side, differences
from labkit.labs.optimizer_sharding.worker.variants import VARIANTS

SAME = 1e-4


def attempt(worker: Worker, point) -> None:
    """Append a row: as lab's equality, and after one step `first_error`; `saved`: the share of a state_dict's moments
    that are those of the optimizer which shards nothing. The learning rate falls every second step.
    """
    ours = Side(worker, point, "sharded", VARIANTS[point.variant])
    right = Side(worker, point, "unsharded")
    start = [weight.detach().clone() for weight in right.model.parameters()]
    ours.step(0)
    right.step(0)
    row = {"first_error": differences(ours, right, start)["error"], "saved": saved(ours.optimizer, right.optimizer)}
    for number in range(1, worker.plan.steps):
        ours.step(number)
        right.step(number)
    worker.record(entry="trial", **differences(ours, right, start), **row)


def saved(ours: torch.optim.Optimizer, right: torch.optim.Optimizer) -> float:
    """Give the share of the numbers in the right state_dict that ours has, too."""
    found, wanted = ours.state_dict()["state"], right.state_dict()["state"]
    same = total = 0
    for number, state in wanted.items():
        for name, value in state.items():
            one = found.get(number, {}).get(name)
            close = torch.isclose(one.to(value), value, SAME, 0) if torch.is_tensor(one) else torch.zeros(1)
            same, total = same + int(close.sum()), total + value.numel()
    return same / total
