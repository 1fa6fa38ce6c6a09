"""One tile, added by a student's function to what a block of queries has kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

NAMES = ("m", "l", "o")


def drive(function: Callable, _world: Any, _ranks: int, *kept_scores_values: Sequence) -> list[list] | dict[str, str]:
    """Return m, l and o of each query; `form`, what is wrong with what the function gives, where these are none."""
    m, l, o, s, v = (torch.tensor(numbers, dtype=torch.float64) for numbers in kept_scores_values)
    given = function(m.clone(), l.clone(), o.clone(), s, v)
    if not isinstance(given, tuple | list) or len(given) != 3 or not all(map(torch.is_tensor, given)):
        return {"form": f"gives {type(given).__name__}, not the three tensors m, l and o"}
    for name, found, kept in zip(NAMES, given, (m, l, o), strict=True):
        if found.shape != kept.shape:
            return {"form": f"gives {name} of shape {(*found.shape,)}, not {(*kept.shape,)}"}
    return [[each.tolist() for each in row] for row in zip(*given, strict=True)]
