"""FSDP written down: which modules become units, and gradients of some micro-batches with one exchange."""

from __future__ import annotations

from torch.distributed.fsdp import fully_shard

FUNCTIONS = ("shard_units", "add_gradients")


def shard_units(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def add_gradients(model, micro_batches):
    for number, (tokens, targets) in enumerate(micro_batches):
        model.set_requires_gradient_sync(number == len(micro_batches) - 1)
        (model(tokens, targets) / len(micro_batches)).backward()
