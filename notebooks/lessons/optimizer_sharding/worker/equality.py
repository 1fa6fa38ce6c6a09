"""Our sharded optimizer compared with the one that shards nothing: in every case, and with one bug each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.strategies import held_bytes
from labkit.worker.transformer import seeded_transformer
from lessons.optimizer_sharding.worker.sharded import ShardedOptimizer
from lessons.optimizer_sharding.worker.training import average, batch, make_optimizer, sharded_kind, states
from lessons.optimizer_sharding.worker.zero import ZeroOptimizer

_FROZEN = ("frozen", "unfrozen")


class Side:
    """A model that trains under one of the two optimizers, as the case says."""

    def __init__(self, worker: Worker, point: SimpleNamespace, way: str, sharded: type = ShardedOptimizer):
        self.worker, self.case = worker, getattr(point, "case", "scheduler")
        self.point, self.sharded, self.asked = type(point)(**vars(point) | {"way": way}), sharded, 0
        self.model: Any = seeded_transformer(worker.plan, point.seed, worker.device)
        self.batch = batch(worker.plan, point.seed, worker.rank, worker.device)
        if self.case == "tied":
            self.model.head.weight = self.model.embedding.weight
        if self.case in _FROZEN:
            self.model.blocks[0].requires_grad_(False)
        starts = "unsharded" if self.case == "from_plain" else way
        self.optimizer = self._make_optimizer(starts, self.first_groups())
        if self.case == "scheduler":
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def _make_optimizer(self, way: str, parameters, group: Any = None) -> Any:
        return make_optimizer(parameters, type(self.point)(**vars(self.point) | {"way": way}), group, self.sharded)

    def first_groups(self) -> list:
        """Return the parameters, or groups of them, that the optimizer starts with."""
        model = self.model
        if self.case == "groups":
            norms, matrices = (
                [parameter for parameter in model.parameters() if (parameter.dim() > 1) == wide]
                for wide in (False, True)
            )
            return [{"params": norms, "lr": 5e-3, "weight_decay": 0.0}, {"params": matrices}]
        return list(model.blocks.parameters() if self.case == "added_group" else model.parameters())

    def step(self, number: int) -> None:
        """Run step `number`, with what the case brings half-way."""
        if number == self.worker.plan.steps // 2:
            self.half_way()
        if self.case == "closure":
            loss = self.optimizer.step(self.gradients)
            assert torch.is_tensor(loss), "the closure's loss must come back"
        else:
            self.gradients()
            if self.case == "no_gradient" and number < self.worker.plan.steps // 2:
                self.model.head.weight.grad = self.model.blocks[1].norm1.weight.grad = None
            self.optimizer.step()
        if self.case == "scheduler":
            self.scheduler.step()

    def gradients(self) -> torch.Tensor:
        """Run forward and backward, average the gradients, and give the loss."""
        self.asked += 1
        self.optimizer.zero_grad(set_to_none=self.case != "kept_gradients")
        loss = self.model(*self.batch)
        loss.backward()
        if not isinstance(self.optimizer, ZeroOptimizer):
            average(self.model.parameters())
        return loss

    def half_way(self) -> None:
        """Do what the case has for the middle of the training."""
        way = self.point.way
        if self.case == "unfrozen":
            self.model.blocks[0].requires_grad_(True)
        if self.case == "added_group":
            others = (self.model.embedding, self.model.norm, self.model.head)
            parameters = [parameter for part in others for parameter in part.parameters()]
            self.optimizer.add_param_group({"params": parameters, "lr": 5e-4})
        if self.case in ("to_plain", "from_plain", "other_ranks"):
            saved = self.optimizer.state_dict()
            ranks = list(range(self.worker.gpus))
            parts = [dist.new_group(some) for some in (ranks[:-1], ranks[-1:])]
            group = parts[self.worker.rank == ranks[-1]] if self.case == "other_ranks" else None
            goes_on = "unsharded" if self.case == "to_plain" else way
            self.optimizer = self._make_optimizer(goes_on, self.model.parameters(), group)
            self.optimizer.load_state_dict(saved)


def compare(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row of what ten steps did to our weights and to those of the optimizer that shards nothing.

    `error` and `moved`: over all tensors, the largest difference from the right weights, and how far these have moved,
    each in lengths of the tensor's largest number. `drift`: how far replicas are apart. `asked`: closures, a step.
    `state_share`: bytes of states that this rank holds, of the whole.
    """
    sharded = Side(worker, point, point.way, sharded_kind(worker.plan, point.way))
    unsharded = Side(worker, point, "unsharded")
    start = [weight.detach().clone() for weight in unsharded.model.parameters()]
    for number in range(worker.plan.steps):
        sharded.step(number)
        unsharded.step(number)
    worker.record(entry="equality", **differences(sharded, unsharded, start), asked=sharded.asked / worker.plan.steps)


def differences(sharded: Side, unsharded: Side, start: list[torch.Tensor]) -> dict[str, float]:
    """Return error, moved, drift and state_share of the two sides."""
    pairs = list(zip(sharded.model.parameters(), unsharded.model.parameters(), start, strict=True))
    state_bytes = held_bytes(states(unsharded.optimizer))
    return {
        "error": max(
            ((weight - right_weight).abs().max() / right_weight.abs().max()).item() for weight, right_weight, _ in pairs
        ),
        "moved": max(
            ((right_weight - start_weight).abs().max() / right_weight.abs().max()).item()
            for _, right_weight, start_weight in pairs
        ),
        "drift": max(_difference_over_ranks(weight) for weight, *_ in pairs),
        "state_share": held_bytes(states(sharded.optimizer)) / state_bytes if state_bytes else 0.0,
    }


@torch.no_grad()
def _difference_over_ranks(weight: torch.Tensor) -> float:
    """Return how far the ranks' copies of a weight are apart, in lengths of its largest number."""
    ends = torch.stack([weight, -weight])
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    return (ends.sum(0).max() / weight.abs().max()).item()


class Nothing:
    """Stands for work that is not there."""

    def wait(self) -> None:
        """Wait for nothing."""


class SendsNothing(ShardedOptimizer):
    """Updates this rank's elements and leaves it at that."""

    @torch.no_grad()
    def step(self, closure=None):
        for bucket in self.buckets:
            self.update(bucket)


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
    "sends_nothing": SendsNothing,
    "own_part": OwnPart,
    "stale_rate": StaleRate,
}


_SAME = 1e-4


def try_variant(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row: as `compare` does, and after one step `first_error`; `saved`: the share of a state_dict's moments
    that are those of the optimizer which shards nothing. The learning rate falls every second step.
    """
    sharded = Side(worker, point, "sharded", VARIANTS[point.variant])
    unsharded = Side(worker, point, "unsharded")
    start = [weight.detach().clone() for weight in unsharded.model.parameters()]
    sharded.step(0)
    unsharded.step(0)
    row = {
        "first_error": differences(sharded, unsharded, start)["error"],
        "saved": _saved_share(sharded.optimizer, unsharded.optimizer),
    }
    for number in range(1, worker.plan.steps):
        sharded.step(number)
        unsharded.step(number)
    worker.record(entry="trial", **differences(sharded, unsharded, start), **row)


def _saved_share(sharded: torch.optim.Optimizer, unsharded: torch.optim.Optimizer) -> float:
    """Return the share of the numbers in the unsharded state_dict that the sharded one has, too."""
    saved, wanted = sharded.state_dict()["state"], unsharded.state_dict()["state"]
    same = total = 0
    for number, state in wanted.items():
        for name, value in state.items():
            value_found = saved.get(number, {}).get(name)
            close = (
                torch.isclose(value_found.to(value), value, _SAME, 0)
                if torch.is_tensor(value_found)
                else torch.zeros(1)
            )
            same, total = same + int(close.sum()), total + value.numel()
    return same / total
