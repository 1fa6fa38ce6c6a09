"""What DDP and FSDP do, by hand: the hook that averages a bucket, and a layer of which each rank keeps a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from labkit.engine.called_function import load_functions
from labkit.worker.strategies import after_gradient
from labkit.worker.trainer import Trainer
from lessons.ddp_fsdp.plan import LAYER_FUNCTIONS


def average(group, bucket):
    """Average one bucket's gradients over the ranks; DDP goes on with backward while the bytes travel."""
    gradients = bucket.buffer().div_(dist.get_world_size(group))
    work: Any = dist.all_reduce(gradients, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


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


def layer_of(file: str) -> type[ShardedLayer]:
    """Return the layer whose three functions somebody wrote."""
    return type("Yours", (ShardedLayer,), load_functions(Path(file), *LAYER_FUNCTIONS))


class ByHand(Trainer):
    """A model whose blocks are ShardedLayers; the gradients of all else are averaged after backward, one by one."""

    def __init__(
        self,
        model: nn.Module,
        group: dist.ProcessGroup | None,
        device: torch.device,
        optimizer: Callable,
        layer: type[ShardedLayer] = ShardedLayer,
    ):
        blocks: Any = model.blocks
        for number, block in enumerate(blocks):
            blocks[number] = layer(block, group)
        super().__init__(model, "single", group, device, optimizer)
        self.group = group

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()
        shards = {id(block.shard) for block in self.model.blocks}
        for weight in self.weights():
            gradient: Any = weight.grad
            if id(weight) not in shards:
                dist.all_reduce(gradient.div_(dist.get_world_size(self.group)), group=self.group)

    def whole(self) -> Iterator[torch.Tensor]:
        sharded = {id(block.shard): block for block in self.model.blocks}
        for weight in self.weights():
            if (block := sharded.get(id(weight))) is None:
                yield weight.detach()
                continue
            block.gather()
            yield from [part.detach().clone() for part in block.weights().values()]
            block.free()
