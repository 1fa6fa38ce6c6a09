"""The fourth idea, and torch's: send gradients during backward, in buckets large enough to be worth a call."""

from __future__ import annotations

from itertools import groupby

import torch
import torch.distributed as dist
from torch import nn

from labkit.labs.ddp_from_scratch.theory import MIB, fill
from labkit.labs.ddp_from_scratch.worker.overlapped import Overlapped
from labkit.theory.traffic import FIRST_BUCKET

BUCKET_MB = 25  # torch's own size, for a `bucket_mb` of None, as there


class Bucketed(Overlapped):
    """Sends parcels of `bucket_mb` MiB or a little more; the first is of 1 MiB, so that sending starts early.

    A bucket is one long tensor that stays. A gradient is copied into its place there when it arrives, and from then on
    that place is the gradient: the mean needs no way back.
    """

    def __init__(self, module: nn.Module, bucket_mb: float | None = None, group: dist.ProcessGroup | None = None):
        self.bucket_mb = BUCKET_MB if bucket_mb is None else bucket_mb
        super().__init__(module, group)

    def reserve(self) -> None:
        self.buckets = [torch.cat([weight.detach().flatten() for weight in parcel]) for parcel in self.parcels]
        self.places = {
            weight: place.view_as(weight)
            for parcel, bucket in zip(self.parcels, self.buckets, strict=True)
            for weight, place in zip(parcel, bucket.split([weight.numel() for weight in parcel]), strict=True)
        }

    def pack(self) -> list[list[nn.Parameter]]:
        """Return the buckets' weights, filled from the last one back; a bucket holds numbers of one kind."""
        parcels, cap = [], self.bucket_mb * MIB
        for _, alike in groupby(self.weights[::-1], key=lambda weight: (weight.dtype, weight.device)):
            weights = list(alike)[::-1]
            filled = fill([weight.nbytes for weight in weights], cap, cap if parcels else FIRST_BUCKET)
            parcels += [[weights[number] for number in bucket] for bucket in filled]
        return parcels

    def place(self, weight: nn.Parameter) -> None:
        place = self.places[weight]
        if weight.grad is not place:
            weight.grad = place.copy_(weight.grad)

    def content(self, number: int) -> torch.Tensor:
        return self.buckets[number]
