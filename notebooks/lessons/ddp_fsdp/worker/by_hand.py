"""What DDP and FSDP do, by hand: the hook that averages a bucket, and a model of sharded layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.called_function import load_functions
from labkit.worker.trainer import Trainer
from lessons.ddp_fsdp.plan import LAYER_FUNCTIONS
from lessons.ddp_fsdp.worker.sharded_layer import ShardedLayer


def average(group, bucket):
    """Average one bucket's gradients over the ranks; DDP goes on with backward while the bytes travel."""
    gradients = bucket.buffer().div_(dist.get_world_size(group))
    work: Any = dist.all_reduce(gradients, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


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
