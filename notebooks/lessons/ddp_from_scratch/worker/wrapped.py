"""A model under any strategy by name, torch's DDP and "nothing sent" among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.called_function import load_function
from lessons.ddp_from_scratch.plan import YOURS
from lessons.ddp_from_scratch.worker.bucketed import Bucketed
from lessons.ddp_from_scratch.worker.replicas import Flat, Naive, Overlapped, Replicas
from lessons.ddp_from_scratch.worker.tried import yours


class Alone(Replicas):
    """Replicas that exchange nothing after their start."""

    def finish(self) -> None:
        """Leave the gradients as this rank computed them."""


class Torch(DistributedDataParallel):
    """torch's DDP with our methods, which do nothing: its gradients are averaged when backward ends.

    torch's hooks go with the object, so that nothing is left to close.
    """

    def finish(self) -> None: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


_WITHOUT_BUCKETS = {"none": Alone, "naive": Naive, "flat": Flat, "overlapped": Overlapped}


def wrap(
    module: nn.Module,
    strategy: str,
    bucket_mb: float | None,
    group: dist.ProcessGroup | None = None,
    file: str = "",
) -> Any:
    """Return the module under a strategy; gradients live in torch's buckets as they live in ours.

    `file` holds the method of a strategy that is the student's.
    """
    if method := YOURS.get(strategy):
        return yours(method, load_function(Path(file), method))(module, group)
    if strategy == "bucketed":
        return Bucketed(module, bucket_mb, group)
    if strategy == "ddp":
        device = next(module.parameters()).device
        devices = [device] if device.type == "cuda" else None
        return Torch(module, devices, process_group=group, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    return _WITHOUT_BUCKETS[strategy](module, group)
