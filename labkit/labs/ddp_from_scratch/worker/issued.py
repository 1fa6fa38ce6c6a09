"""What ours are held against: torch's DistributedDataParallel, and a step that sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.ddp_from_scratch.worker.overlapped import Bucketed, Overlapped
from labkit.labs.ddp_from_scratch.worker.replicas import Flat, Naive, Replicas
from labkit.worker.counting import Collectives

_PLAIN = {"naive": Naive, "flat": Flat, "overlapped": Overlapped}


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


def wrap(module: nn.Module, strategy: str, bucket_mb: float | None, group: dist.ProcessGroup | None = None) -> Any:
    """Return the module under a strategy; gradients live in torch's buckets as they live in ours."""
    if strategy == "none":
        return Alone(module, group)
    if strategy == "bucketed":
        return Bucketed(module, bucket_mb, group)
    if strategy == "ddp":
        device = next(module.parameters()).device
        own = [device] if device.type == "cuda" else None
        return Torch(module, own, process_group=group, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    return _PLAIN[strategy](module, group)


class Issued(Collectives):
    """Notes while it is on, whoever calls: "gradient" when one has been computed, bytes when some are sent.

    Torch's dispatcher tells of the collectives, autograd of the gradients: nothing relies on what a strategy says of
    itself. Numbers that are no floats (which weights were used) carry no gradient and do not count.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.events: list[str | int] = []
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        # These hooks run ahead of those that a strategy has on gradients that have been added up.
        self.hooks = [weight.register_hook(self.noted) for weight in weights]

    def noted(self, _: torch.Tensor) -> None:
        self.events.append("gradient")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d" and "reduce" in function.overloadpacket.__name__:
            tensors = [one for arg in args if isinstance(arg, list | tuple) for one in arg]
            self.events += [one.nbytes for one in tensors if isinstance(one, torch.Tensor) and one.is_floating_point()]
        return super().__torch_dispatch__(function, types, args, kwargs)

    def during(self, forward: Callable, finish: Callable) -> dict:
        """Run one forward, its backward and `finish`; give what was sent, and how much of it during backward.

        `before_last_gradient`: how many collectives were called while a gradient was still to come;
        `gradients_after_first`: how many gradients came after the first collective had been called.
        """
        try:
            loss = forward()
            with self:
                loss.backward()
                self.events.append("backward ends")
                finish()
        finally:
            for hook in self.hooks:
                hook.remove()
        sizes = _sent(self.events)
        last = max(number for number, event in enumerate(self.events) if event == "gradient")
        after = self.events[self.events.index(sizes[0]) :] if sizes else []
        return {
            "collectives": len(sizes),
            "sizes_bytes": sizes,
            "during_backward": len(_sent(self.events[: self.events.index("backward ends")])),
            "before_last_gradient": len(_sent(self.events[:last])),
            "gradients": self.events.count("gradient"),
            "gradients_after_first": after.count("gradient"),
        }


def _sent(events: list[str | int]) -> list[int]:
    """Return the bytes of each collective among the events."""
    return [event for event in events if isinstance(event, int)]
