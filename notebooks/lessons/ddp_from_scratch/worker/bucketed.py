"""The fourth way: gradients in buckets of a size that is asked for."""

from __future__ import annotations

from itertools import groupby

import torch
import torch.distributed as dist
from torch import nn

from labkit.theory.sizes import MIB
from labkit.theory.traffic import BUCKET, FIRST_BUCKET
from lessons.ddp_from_scratch.theory import fill
from lessons.ddp_from_scratch.worker.replicas import Overlapped


class Bucketed(Overlapped):
    """Sends buckets of `bucket_mb` MiB (torch calls MiB "MB") or a little more; the first holds 1 MiB, to start early.

    A bucket is one long tensor. A ready gradient is copied into its part of it, and `weight.grad` becomes a view of
    that part: the mean needs no copy back.
    """

    def __init__(self, module: nn.Module, bucket_mb: float | None = None, group: dist.ProcessGroup | None = None):
        self.bucket_mb = BUCKET / MIB if bucket_mb is None else bucket_mb  # None: torch's own size
        super().__init__(module, group)

    def fill_buckets(self) -> list[list[nn.Parameter]]:
        """Return the weights of each bucket, filled from the last weight back; a bucket holds one data type."""
        buckets, cap = [], self.bucket_mb * MIB
        for _, alike in groupby(self.weights[::-1], key=lambda weight: (weight.dtype, weight.device)):
            weights = list(alike)[::-1]
            filled = fill([weight.nbytes for weight in weights], cap, cap if buckets else FIRST_BUCKET)
            buckets += [[weights[number] for number in bucket] for bucket in filled]
        return buckets

    def allocate(self) -> None:
        self.flats = [torch.cat([weight.detach().flatten() for weight in bucket]) for bucket in self.buckets]
        self.views = {
            weight: part.view_as(weight)
            for bucket, flat in zip(self.buckets, self.flats, strict=True)
            for weight, part in zip(bucket, flat.split([weight.numel() for weight in bucket]), strict=True)
        }

    def copy_into_bucket(self, weight: nn.Parameter) -> None:
        view = self.views[weight]
        if weight.grad is not view:
            weight.grad = view.copy_(self.gradient(weight))

    def tensor_of(self, number: int) -> torch.Tensor:
        return self.flats[number]
