"""A student's first collective, tried on some ranks. Imports nothing of labkit: answers are graded with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def drive(function: Callable, world: Any, _ranks: int, length: int, seed: int) -> dict[str, Any]:
    """Return a rank's `own` numbers, what the `tensor` holds afterwards, and the tensor that is `returned`, if any."""
    own = torch.randn(length, generator=torch.Generator().manual_seed(seed + world.rank), dtype=torch.float64)
    given = function(tensor := own.clone())
    returned = given.tolist() if isinstance(given, torch.Tensor) and given.shape == own.shape else None
    return {"own": own.tolist(), "tensor": tensor.tolist(), "returned": returned}
