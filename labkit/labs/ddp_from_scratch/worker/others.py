"""What ours are held against: torch's DistributedDataParallel, and a step that sends nothing."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.ddp_from_scratch.worker.bucketed import Bucketed
from labkit.labs.ddp_from_scratch.worker.flat import Flat
from labkit.labs.ddp_from_scratch.worker.naive import Naive
from labkit.labs.ddp_from_scratch.worker.overlapped import Overlapped
from labkit.labs.ddp_from_scratch.worker.replicas import Replicas

PLAIN = {"naive": Naive, "flat": Flat, "overlapped": Overlapped}


class Alone(Replicas):
    """Replicas that never exchange anything after their start."""

    def finish(self) -> None:
        """Leave the gradients as this rank made them."""


class Torch(DistributedDataParallel):
    """torch's replicas with our `finish`: they have averaged when backward is over."""

    def finish(self) -> None:
        """Have nothing left to do."""

    def drain(self) -> None:
        """Have nothing to wait for."""

    def close(self) -> None:
        """Leave it to the garbage collector: torch's hooks go with the object."""


def wrap(
    module: nn.Module, strategy: str, bucket_mb: float | None, group: dist.ProcessGroup | None = None
) -> nn.Module:
    """Give the module under a strategy; gradients live in torch's buckets as they live in ours."""
    if strategy == "none":
        return Alone(module, group)
    if strategy == "bucketed":
        return Bucketed(module, bucket_mb, group)
    if strategy == "ddp":
        device = next(module.parameters()).device
        own = [device] if device.type == "cuda" else None
        return Torch(module, own, process_group=group, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    return PLAIN[strategy](module, group)
