"""The ways to update that are compared: whole states, torch's own sharded optimizer, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from labkit.labs.optimizer_sharding.worker.sharded import ShardedOptimizer

KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 1e-2}),
    "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}

SMALL_BYTES = 2**20  # of a gradient that is not worth a call of its own


def made(
    parameters: Iterable,
    point: SimpleNamespace,
    group: dist.ProcessGroup | None = None,
    sharded: type = ShardedOptimizer,
) -> torch.optim.Optimizer:
    """Return the point's optimizer of parameters (or parameter groups) in the point's way."""
    kind, options = KINDS[point.optimizer]
    options = options | {point.kernel: True}
    if point.way == "unsharded":
        return kind(parameters, **options)
    if point.way == "sharded":
        return sharded(parameters, kind, group, bucket_mib=point.bucket_mib, **options)
    in_buckets = point.way == "zero_buckets"
    return ZeroRedundancyOptimizer(parameters, kind, group, parameters_as_bucket_view=in_buckets, **options)


def local_update(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return what updates this rank's elements and sends nothing."""
    if isinstance(optimizer, ShardedOptimizer):
        return lambda: [optimizer.update(bucket) for bucket in optimizer.buckets]
    return getattr(optimizer, "optim", optimizer).step


def states(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors of states that this rank holds, but counts of steps."""
    ours = [bucket.optimizer for bucket in getattr(optimizer, "buckets", [])]
    inner = ours or [getattr(optimizer, "optim", optimizer)]
    for state in (state for one in inner for state in one.state.values()):
        yield from (value for value in state.values() if torch.is_tensor(value) and value.dim())


def average(parameters: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Replace every gradient by its mean over the ranks (lab 10): small ones in one call, large ones in one each."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    small = [gradient for gradient in gradients if gradient.nbytes < SMALL_BYTES]
    flat = torch.cat([gradient.flatten() for gradient in small]) if small else torch.empty(0)
    sent = [gradient for gradient in gradients if gradient.nbytes >= SMALL_BYTES] + ([flat] if small else [])
    for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in sent]:
        work.wait()
    torch._foreach_div_(sent, dist.get_world_size(group))
    for gradient, mean in zip(small, flat.split([one.numel() for one in small]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def held(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of some tensors."""
    return sum(tensor.nbytes for tensor in tensors)
