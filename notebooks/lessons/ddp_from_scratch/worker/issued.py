"""What a step sends, and when: before the last gradient is there, or after it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from labkit.worker.collectives import CollectiveCounter


class IssueOrder(CollectiveCounter):
    """Records the order of events: "gradient" when one is computed, a number of bytes when an all-reduce is called.

    torch's dispatcher reports every collective, whoever calls it, and autograd reports the gradients, so nothing relies
    on what a strategy says of itself. All-reduces of flags, which are no floats, do not count.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.events: list[str | int] = []
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        # These hooks run before those that a strategy has on accumulated gradients.
        self.hooks = [weight.register_hook(self.note_gradient) for weight in weights]

    def note_gradient(self, _: torch.Tensor) -> None:
        self.events.append("gradient")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d" and "reduce" in function.overloadpacket.__name__:
            tensors = [tensor for arg in args if isinstance(arg, list | tuple) for tensor in arg]
            self.events += [
                tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
            ]
        return super().__torch_dispatch__(function, types, args, kwargs)

    def during(self, forward: Callable, finish: Callable) -> dict:
        """Run one forward, its backward and `finish`; return what was sent, and how much of it during backward.

        `before_last_gradient`: all-reduces that were called before the last gradient was computed;
        `gradients_after_first`: gradients that were computed after the first all-reduce was called.
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
        sizes = _all_reduce_bytes(self.events)
        last = max(number for number, event in enumerate(self.events) if event == "gradient")
        after = self.events[self.events.index(sizes[0]) :] if sizes else []
        return {
            "collectives": len(sizes),
            "sizes_bytes": sizes,
            "during_backward": len(_all_reduce_bytes(self.events[: self.events.index("backward ends")])),
            "before_last_gradient": len(_all_reduce_bytes(self.events[:last])),
            "gradients": self.events.count("gradient"),
            "gradients_after_first": after.count("gradient"),
        }


def _all_reduce_bytes(events: list[str | int]) -> list[int]:
    """Return the bytes of each all-reduce among the events."""
    return [event for event in events if isinstance(event, int)]
