"""A layer of which each rank keeps a part. It also runs where an answer is graded, and labkit is out of reach there."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from labkit.worker.strategies import after_gradient


class ShardedLayer(nn.Module):
    """A layer of which each rank keeps 1/N of the weights; all of them are here only while it computes."""

    def __init__(self, layer: nn.Module, group: dist.ProcessGroup | None):
        super().__init__()
        self.group, self.ranks = group, dist.get_world_size(group)
        self.shapes = {name: weight.shape for name, weight in layer.named_parameters()}
        flat = torch.cat([weight.detach().flatten() for weight in layer.parameters()])
        padded = nn.functional.pad(flat, (0, -len(flat) % self.ranks))
        self.shard = nn.Parameter(padded.chunk(self.ranks)[dist.get_rank(group)].clone())
        self.whole = padded.requires_grad_()
        after_gradient(self.whole, self, lambda layer: layer.scatter())
        self.layer = (layer.to("meta"),)  # in a tuple: the optimizer must not find its weights
        self.free()

    def gather(self) -> None:
        """Give `whole` its memory, and collect all ranks' shards in it."""
        self.whole.untyped_storage().resize_(self.whole.nbytes)
        dist.all_gather_into_tensor(self.whole.data, self.shard.data, group=self.group)

    def free(self) -> None:
        """Take the memory of `whole` away; its shape and its place in the graph stay."""
        self.whole.untyped_storage().resize_(0)

    def weights(self) -> dict[str, torch.Tensor]:
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = self.whole[: sum(sizes)].split(sizes)
        return {name: part.view(self.shapes[name]) for name, part in zip(self.shapes, parts, strict=True)}

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        self.gather()
        output = functional_call(self.layer[0], self.weights(), inputs)
        self.free()
        output.register_hook(self.enter_backward)
        return output

    def enter_backward(self, _gradient: torch.Tensor) -> None:
        self.gather()

    def scatter(self) -> None:
        """Keep this rank's part of the gradients' mean; backward has just left this layer."""
        gradient: Any = self.whole.grad
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(self.shard.grad, gradient / self.ranks, group=self.group)
        self.whole.grad = None
        self.free()
