"""Counts FLOP and bytes of every operator, as the dispatcher sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# Attention on a CPU, which torch's own counter does not know: two products forward, five backward.
_CPU_ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": 2,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 5,
}
_NO_WORK = ("empty", "detach", "lift", "_local_scalar", "_unsafe_view")  # names that begin so neither read nor write


@dataclass
class Counts:
    """Calls of one operator, with their FLOP and the bytes that they read and write at least."""

    calls: int = 0
    flop: float = 0.0
    moved_bytes: float = 0.0


class Traffic(TorchDispatchMode):
    """Adds up, by operator ("aten::mm"), calls, FLOP and bytes of what runs while it is on, backward included.

    Bytes: every tensor that goes in is read once, and every one that is made or changed is written once. FLOP: torch's
    own count for matrix products and attention; of all other operators, one for every element that they read (or
    write, where they read none): a convention, by which a copy is an operation, too.
    """

    def __init__(self):
        super().__init__()
        self.counts: dict[str, Counts] = defaultdict(Counts)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = str(function.overloadpacket.__name__)
        if function.is_view or name.startswith(_NO_WORK):
            return result
        read, written = _tensors((args, kwargs)), _tensors(result)
        changed = _changed(function, args)
        known = {id(tensor) for tensor in read}
        made = [tensor for tensor in written if id(tensor) not in known]
        counts = self.counts[f"{function.namespace}::{name}"]
        counts.calls += 1
        counts.moved_bytes += sum(map(_bytes, [*read, *made, *changed]))
        counts.flop += _flop(function, name, args, kwargs, result, read, made)
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    """Return every tensor in nested arguments or results, each once."""
    found = (value for value in tree_leaves(values) if isinstance(value, torch.Tensor))
    return list({id(tensor): tensor for tensor in found}.values())


def _changed(function: Any, args: tuple) -> list[torch.Tensor]:
    """Return the arguments that the operator writes to, by its schema."""
    pairs = zip(function._schema.arguments, args, strict=False)
    return _tensors([value for argument, value in pairs if argument.alias_info and argument.alias_info.is_write])


def _bytes(tensor: torch.Tensor) -> int:
    """Return a tensor's bytes; of an expanded one, those that are there."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _flop(function: Any, name: str, args: tuple, kwargs: dict, result: Any, read: list, made: list) -> float:
    counter = flop_registry.get(function.overloadpacket)
    if counter is not None:
        return counter(*args, **kwargs, out_val=result)
    if name in _CPU_ATTENTION:
        head = next(tensor for tensor in read if tensor.dim() == 4)  # (batch, heads, sequence, width)
        return _CPU_ATTENTION[name] * 2 * head.numel() * head.shape[-2]
    return _elements(read) or _elements(made)
