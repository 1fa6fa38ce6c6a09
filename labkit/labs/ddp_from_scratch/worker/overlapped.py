"""The third and the fourth idea, torch's: send gradients during backward, each alone, or in buckets worth a call."""

from __future__ import annotations

from itertools import groupby

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

from labkit.labs.ddp_from_scratch.theory import MIB, fill
from labkit.labs.ddp_from_scratch.worker.replicas import Replicas
from labkit.theory.traffic import FIRST_BUCKET

_BUCKET_MB = 25  # torch's own size, for a `bucket_mb` of None, as there


class Overlapped(Replicas):
    """Sends parcels of gradients during backward; here each gradient is a parcel of its own.

    A hook on every weight runs when its gradient is there. Parcels leave in one order, the same on all ranks, even
    where a rank's gradients come in another: a complete parcel waits for those before it. Collectives of different
    ranks are matched by their order alone.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__(module, group)
        self.parcels = self.pack()
        self.reserve()
        self.number = {weight: number for number, parcel in enumerate(self.parcels) for weight in parcel}
        self.works: list[dist.Work] = []
        self.unfinished = False
        self.expect()
        # Hooks are registered last: a wrapper that runs out of memory while it is made leaves none on the module.
        self.hooks = [weight.register_post_accumulate_grad_hook(self.arrived) for weight in self.weights]
        # `begin` runs once per backward, when its first gradient is computed and not yet added to the weight's.
        self.hooks.append(register_multi_grad_hook(self.weights, self.begin, mode="any"))

    def pack(self) -> list[list[nn.Parameter]]:
        """Return what travels together, in the order of sending: the last weight's gradient is ready first."""
        return [[weight] for weight in reversed(self.weights)]

    def reserve(self) -> None:
        """Make the memory that parcels are sent from; a gradient alone is sent from where it is."""

    def expect(self) -> None:
        """Await every gradient anew."""
        self.missing = [len(parcel) for parcel in self.parcels]
        self.works.clear()

    def begin(self, _: torch.Tensor) -> None:
        """Have what an earlier backward sent come back before this backward adds to it."""
        if self.unfinished:
            self.settle()
        self.unfinished = self.synced

    def arrived(self, weight: nn.Parameter) -> None:
        """Note that a gradient is there, and send every complete parcel whose turn has come."""
        if self.synced:
            self.place(weight)
            self.missing[self.number[weight]] -= 1
            while len(self.works) < len(self.parcels) and not self.missing[len(self.works)]:
                self.send()

    def place(self, weight: nn.Parameter) -> None:
        """Put the weight's gradient where it is sent from; alone, it is there already."""

    def content(self, number: int) -> torch.Tensor:
        """Return the tensor that parcel `number` is sent as."""
        return self.gradient(self.parcels[number][0])

    def send(self) -> None:
        """Start to average the next parcel."""
        self.works.append(self.average(self.content(len(self.works))))

    def exchange(self) -> None:
        self.send_rest()
        for work in self.works:
            work.wait()
        self.expect()
        self.unfinished = False

    def send_rest(self) -> None:
        """Send what backward left incomplete: it made no gradient there, or one was there from before."""
        for parcel in self.parcels[len(self.works) :]:
            for weight in parcel:
                self.gradient(weight)
                self.place(weight)
            self.send()

    def drain(self) -> None:
        super().drain()
        for work in self.works:
            work.wait()

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
        super().close()


class Bucketed(Overlapped):
    """Sends parcels of `bucket_mb` MiB or a little more; the first is of 1 MiB, so that sending starts early.

    A bucket is one long tensor that stays. A gradient is copied into its place there when it arrives, and from then on
    that place is the gradient: the mean needs no way back.
    """

    def __init__(self, module: nn.Module, bucket_mb: float | None = None, group: dist.ProcessGroup | None = None):
        self.bucket_mb = _BUCKET_MB if bucket_mb is None else bucket_mb
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
            weight.grad = place.copy_(self.gradient(weight))

    def content(self, number: int) -> torch.Tensor:
        return self.buckets[number]
