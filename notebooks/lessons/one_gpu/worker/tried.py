"""A loss in pieces, tried on few tokens: what it gives, and what it holds at most."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labkit.worker.allocations import CountedMemory


def drive(
    function: Callable,
    _world: Any,
    _ranks: int,
    tokens: int,
    words: int,
    width: int,
    pieces: int,
    scale: float,
    seed: int,
) -> dict[str, Any]:
    """Return loss, d_hidden and d_head, and peak: the bytes held at most; `form`, what is wrong with what is given.

    `scale` is the logits' size.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, width, generator=generator) * math.sqrt(scale)
    head = torch.randn(words, width, generator=generator) * math.sqrt(scale)
    targets = torch.randint(words, (tokens,), generator=generator)
    given = [each.clone() for each in (hidden, head, targets)]
    with CountedMemory() as counted:
        result = function(*given, pieces)
    if not isinstance(result, tuple | list) or len(result) != 3:
        found = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
        return {"form": f"gives {found}, not loss, d_hidden and d_head"}
    loss, *gradients = result
    for name, found, like in zip(("d_hidden", "d_head"), gradients, (hidden, head), strict=True):
        if not torch.is_tensor(found) or found.shape != like.shape:
            shape = (*found.shape,) if torch.is_tensor(found) else type(found).__name__
            return {"form": f"gives {name} as {shape}, not {(*like.shape,)}"}
    if not isinstance(loss, int | float) and not (torch.is_tensor(loss) and loss.numel() == 1):
        return {"form": "gives a loss that is not one number"}
    d_hidden, d_head = (each.detach().double().flatten().tolist() for each in gradients)
    return {"loss": float(loss), "d_hidden": d_hidden, "d_head": d_head, "peak": counted.peak}
