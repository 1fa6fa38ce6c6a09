"""Counts what a step sends while it happens. Imports nothing of labkit: it also runs where an answer is graded."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

COLLECTIVE_NAMES = {
    "allreduce_": "all-reduce",
    "broadcast_": "broadcast",
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
}


class CollectiveCounter(TorchDispatchMode):
    """Notes every collective that is called while it is on, in forward and backward, by name: calls and bytes.

    The bytes are those of the collective's whole tensor: what an all-gather gives, what a reduce-scatter takes.
    `each` has every call's name and bytes, in order.
    """

    def __init__(self):
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.largest = 0
        self.each: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d":
            name = str(function.overloadpacket.__name__)
            tensors = [
                each
                for arg in args
                for each in (arg if isinstance(arg, list | tuple) else [arg])
                if isinstance(each, torch.Tensor)
            ]
            name = COLLECTIVE_NAMES.get(name, name)
            self.calls[name] += 1
            whole = max(tensor.nbytes for tensor in tensors)
            self.bytes[name] += whole
            self.largest = max(self.largest, whole)
            self.each.append((name, whole))
        return function(*args, **(kwargs or {}))


class ListCounter(CollectiveCounter):
    """Counts collectives that give or take a list of tensors, too, with the bytes of the whole list; no barrier."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace != "c10d" or not tensor_bytes(args):
            return function(*args, **(kwargs or {}))
        result = super().__torch_dispatch__(function, types, args, kwargs)
        self.each[-1] = (self.each[-1][0], max(map(tensor_bytes, args)))
        return result


def tensor_bytes(argument: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in a list or in lists of lists."""
    if isinstance(argument, list | tuple):
        return sum(map(tensor_bytes, argument))
    return argument.nbytes if isinstance(argument, torch.Tensor) else 0
