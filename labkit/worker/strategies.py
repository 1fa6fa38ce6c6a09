"""Replicate or shard: what each strategy does to a model before the first step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def wrap(model: nn.Module, strategy: str, group: dist.ProcessGroup | None, device: torch.device) -> nn.Module:
    """Return the model under a strategy, on the ranks of `group` (None: all of them).

    "ddp" keeps everything on every rank; the gradients' memory is the buckets'. The others shard parameters, gradients
    and states. "fsdp_full" gathers a block for forward and again for backward (as ZeRO-3). "fsdp_grad" gathers it once
    and keeps it until backward has used it. This is not ZeRO-2, which keeps all parameters whole between steps, too.
    "fsdp_root" makes the whole model one group. "single" is left as it is.
    """
    if strategy == "single":
        return model
    if strategy == "ddp":
        device_ids = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=device_ids, process_group=group, gradient_as_bucket_view=True)
    all_ranks: Any = dist.group.WORLD
    mesh = DeviceMesh.from_group(group or all_ranks, device.type)
    if strategy != "fsdp_root":
        blocks: Any = model.blocks
        for block in blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=strategy == "fsdp_full")
    fully_shard(model, mesh=mesh)
    return model


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor: all of it, or its shard."""
    return getattr(tensor, "_local_tensor", tensor)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a tensor, gathered where it is sharded; every rank of its group must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def held_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that this rank holds of some tensors."""
    return sum(local_tensor(tensor).nbytes for tensor in tensors)


Owner = TypeVar("Owner")


def after_gradient(weight: torch.Tensor, owner: Owner, action: Callable[[Owner], Any]) -> None:
    """Call `action(owner)` after each backward pass has completed the weight's gradient, while the owner lives.

    Tensor.register_post_accumulate_grad_hook keeps its function where Python's garbage collector does not look. A
    function that holds the model, through its owner or an optimizer, therefore keeps the model's memory for ever.
    """
    held = weakref.ref(owner)

    def call(_weight: torch.Tensor) -> None:
        if (living := held()) is not None:
            action(living)

    weight.register_post_accumulate_grad_hook(call)
