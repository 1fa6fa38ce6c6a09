"""Fully sharded data parallelism in three classes: flat weights, a unit of a model, and the model made of units.

Imports nothing of labkit: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map


class FlatWeights:
    """Weights laid end to end: `shard` is this rank's part, always there; `whole` is all of them, while needed.

    `whole` ends with zeros, so that it divides among the ranks. Each weight is a view of its part of `whole`. The shard
    keeps the model's precision; `whole` and the gradients may have another one.
    """

    def __init__(self, weights: list[nn.Parameter], group: dist.ProcessGroup | None, precision: torch.dtype | None):
        self.weights, self.group, self.ranks = weights, group, dist.get_world_size(group)
        self.elements = sum(weight.numel() for weight in weights)
        self.padding = -self.elements % self.ranks
        whole = self.joined([weight.detach() for weight in weights])
        dist.broadcast(whole, group=group, group_src=0)  # all ranks start with rank 0's weights
        own = whole.chunk(self.ranks)[dist.get_rank(group)].clone()
        self.shard = nn.Parameter(own, requires_grad=weights[0].requires_grad)
        self.whole = whole.to(precision or whole.dtype)
        self.bytes = self.whole.nbytes
        self.work: Any = None  # the gathering that was started and not waited for
        for weight, part in zip(weights, self.whole.split([*map(torch.numel, weights), self.padding]), strict=False):
            weight.data = part.view_as(weight)
        self.free()

    def joined(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """Return tensors of the weights' shapes end to end, and zeros as padding."""
        parts = [tensor.flatten() for tensor in tensors]
        return torch.cat([*parts, parts[0].new_zeros(self.padding)])

    def gradients(self) -> torch.Tensor:
        """Return the weights' gradients end to end (zeros where backward made none), and let the weights' own go."""
        made = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self.weights]
        for weight in self.weights:
            weight.grad = None
        return self.joined(made)

    def gather(self) -> None:
        """Start to fill `whole` from the shards of all ranks, unless it is filled."""
        if self.whole.untyped_storage().nbytes() == 0:
            self.whole.untyped_storage().resize_(self.bytes)
            own = self.shard.detach().to(self.whole.dtype)
            self.work = dist.all_gather_into_tensor(self.whole, own, group=self.group, async_op=True)

    def wait(self) -> None:
        """Wait until `whole` is filled."""
        if self.work:
            self.work.wait()
            self.work = None

    def free(self) -> None:
        """Let the memory of `whole` go; what autograd has kept of the weights are views of it, and go, too."""
        self.wait()
        self.whole.untyped_storage().resize_(0)

    def add(self, part: torch.Tensor) -> None:
        """Add this rank's part of a gradient to the shard's."""
        part = part.to(self.shard.dtype)
        self.shard.grad = part if self.shard.grad is None else self.shard.grad + part


class FullyShardedUnit(nn.Module):
    """A module whose weights are whole while it computes, in forward and again in backward, and sharded otherwise.

    Weights of a unit inside this one are that unit's. `keeps`: the weights stay whole from forward to backward. Outputs
    are tensors, alone or in tuples, lists and dictionaries: backward is not seen to reach other objects.
    """

    sharded: FullySharded

    def __init__(self, module: nn.Module, sharded: FullySharded, keeps: bool = False):
        super().__init__()
        self.module, self.keeps = module, keeps
        self.__dict__["sharded"] = sharded  # not as a part of this module
        inner = {weight for each in module.modules() if isinstance(each, FullyShardedUnit) for weight in each.weights}
        self.weights = [weight for weight in module.parameters() if weight not in inner]
        if shared := [weight for weight in self.weights if weight in sharded.owned]:
            sizes = ", ".join(str(tuple(weight.shape)) for weight in shared)
            raise ValueError(f"weights of two units are tied (shapes {sizes}): put their modules into one unit")
        sharded.owned.update(self.weights)
        kinds = [[weight for weight in self.weights if weight.requires_grad is kind] for kind in (True, False)]
        self.flats = [FlatWeights(weights, sharded.group, sharded.precision) for weights in kinds if weights]
        self.trained = [flat for flat in self.flats if flat.shard.requires_grad]
        self.awaited, self.in_backward = 0, False  # gradients of inputs that backward still has to compute

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        inputs, named_inputs = tree_map(self.entered, (inputs, named_inputs))
        if self.in_backward:  # activation checkpointing computes forward once more, with the weights of this backward
            return self.module(*inputs, **named_inputs)
        self.gather()
        self.sharded.prefetch(self, ahead=1)
        starts = [*filter(_has_gradient, tree_leaves((inputs, named_inputs)))]
        for tensor in starts:  # before the module computes: it may change an input in place
            tensor.register_hook(self.backward_leaves)
        output = self.module(*inputs, **named_inputs)
        ends = [each for each in tree_leaves(output) if _has_gradient(each) and all(each is not one for one in starts)]
        for tensor in ends:
            tensor.register_hook(self.backward_reaches)
        self.awaited += max(1, len(starts)) if ends else 0
        if not (self.keeps and ends):
            self.free()
        return output

    def entered(self, value: Any) -> Any:
        """Return an input in the unit's precision, as a tensor of its own: its gradient ends this unit's backward."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.to(self.sharded.precision or value.dtype).view_as(value)

    def gather(self) -> None:
        """Have all weights whole."""
        for flat in self.flats:
            flat.gather()
        for flat in self.flats:
            flat.wait()

    def free(self) -> None:
        """Let the whole weights go."""
        for flat in self.flats:
            flat.free()

    def backward_reaches(self, _: Any) -> None:
        """Note that backward comes to the outputs of this unit."""
        self.in_backward = True
        self.backward_begins()
        self.sharded.prefetch(self, ahead=-1)

    def backward_begins(self) -> None:
        """Have what this unit's backward needs."""
        self.gather()

    def backward_leaves(self, _: Any = None) -> None:
        """Note that an input has its gradient; after the last one, of all the unit's uses, weights have theirs."""
        self.awaited -= 1
        if self.awaited == 0:
            self.in_backward = False
            if self.sharded.sync:
                self.backward_ends()
            else:
                self.free()

    def backward_ends(self) -> None:
        """Send the gradients, start to receive this rank's part of their mean, and let the whole weights go."""
        self.sharded.settle()
        for flat in self.trained:
            whole = flat.gradients()
            part = whole.new_empty(flat.shard.numel())
            self.sharded.sent.append((self.sharded.scatter_mean(part, whole), flat, part, whole))
        self.free()


class FullySharded(nn.Module):
    """A model in units: those of its modules for which `is_unit` is true, and one that holds all other weights.

        sharded = FullySharded(model, lambda module: isinstance(module, Block))
        optimizer = torch.optim.AdamW(sharded.shards)
        loss = sharded(*batch)
        loss.backward()
        sharded.finish()  # before optimizer.step()

    Every rank must call the same units in the same order, and run a forward that no backward follows under
    `torch.no_grad()`. Activation checkpointing holds one unit at a time, or parts of one. `precision` is that of the
    whole weights, of what the units compute with and of the gradients that are sent; shards and their gradients keep
    the model's. `prefetch`: how many units are gathered ahead of the one that computes. `release` false keeps all
    weights whole until their backward.
    """

    def __init__(
        self,
        module: nn.Module,
        is_unit: Callable[[nn.Module], bool],
        group: dist.ProcessGroup | None = None,
        *,
        precision: torch.dtype | None = None,
        prefetch: int = 1,
        release: bool = True,
        unit: type[FullyShardedUnit] = FullyShardedUnit,
    ):
        super().__init__()
        self.group, self.precision, self.ahead, self.sync = group, precision, prefetch, True
        self.weights = [*module.parameters()]
        self.owned: set[nn.Parameter] = set()
        self.sent: list[tuple[Any, FlatWeights, torch.Tensor, torch.Tensor]] = []
        made: dict[nn.Module, FullyShardedUnit] = {}
        modules = [*module.modules()]
        for parent in reversed(modules):  # units inside a unit first: their weights are not the outer one's
            for name, child in [*parent._modules.items()]:  # named_children leaves out a child's second name
                if child is not None and is_unit(child):
                    made[child] = made.get(child) or unit(child, self, not release)
                    setattr(parent, name, made[child])
        self.module = unit(module, self, keeps=True)
        self.units = [made[each] for each in modules if each in made]
        self.places = {each: number for number, each in enumerate(self.units)}
        self.flats = [flat for each in (self.module, *self.units) for flat in each.flats]
        self.shards = [flat.shard for flat in self.flats]

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        output = self.module(*inputs, **named_inputs)
        if not torch.is_grad_enabled():
            for unit in self.units:
                unit.free()  # what was gathered ahead and not used would be old after the next step
        return output

    def prefetch(self, unit: FullyShardedUnit, ahead: int) -> None:
        """Start to gather the next units (`ahead` 1, in forward) or those before (-1, in backward)."""
        place = self.places.get(unit, -1 if ahead > 0 else len(self.units))
        for number in range(place + ahead, place + ahead * (self.ahead + 1), ahead):
            if 0 <= number < len(self.units):
                for flat in self.units[number].flats:
                    flat.gather()

    def scatter_mean(self, part: torch.Tensor, whole: torch.Tensor) -> Any:
        """Start to fill `part` with this rank's part of the mean of `whole` over the ranks; return the work."""
        if whole.is_cuda:
            return dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.AVG, group=self.group, async_op=True)
        whole.div_(dist.get_world_size(self.group))  # not every gloo can average
        return dist.reduce_scatter_tensor(part, whole, group=self.group, async_op=True)

    def settle(self) -> None:
        """Wait for the parts of gradients that are on their way, and add them to the shards'."""
        for work, flat, part, _ in self.sent:
            work.wait()
            flat.add(part)
        self.sent.clear()

    def finish(self) -> None:
        """End the backward of units that no input's gradient has ended, and wait until every shard has its gradient."""
        for unit in (*reversed(self.units), self.module):
            unsent = self.sync and any(weight.grad is not None for weight in unit.weights)
            if unit.awaited or unit.in_backward or unsent:
                unit.awaited = 1
                unit.backward_leaves()
            unit.free()  # what was gathered ahead and not used
        self.settle()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Send no gradients inside: they add up, whole, on each rank; the next backward outside sends their sums."""
        self.sync = False
        try:
            yield
        finally:
            self.finish()
            self.sync = True

    @torch.no_grad()
    def clip(self, most: float) -> torch.Tensor:
        """Scale the gradients so that the length of all of them is at most `most`; return the length before."""
        gradients = [shard.grad for shard in self.shards if shard.grad is not None]
        square = sum((gradient.float().square().sum() for gradient in gradients), torch.zeros((), device=self.device))
        dist.all_reduce(square, group=self.group)
        length = square.sqrt()
        for gradient in gradients:
            gradient *= (most / length).clamp(max=1)
        return length

    @property
    def device(self) -> torch.device:
        return self.shards[0].device

    @torch.no_grad()
    def whole(self) -> Iterator[torch.Tensor]:
        """Yield each weight whole, in the order of the model's parameters; all ranks must ask."""
        units = {weight: unit for unit in (self.module, *self.units) for weight in unit.weights}
        for weight in self.weights:
            units[weight].gather()
            yield weight.detach().clone()
            units[weight].free()


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
