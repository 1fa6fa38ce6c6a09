"""A `momentum_step` that somebody wrote, tried on some ranks, also where answers are graded."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from lessons.optimizer_sharding.worker.late import LateCalls

RATE, BETA = 0.5, 0.7


def drive(function: Callable, world: SimpleNamespace, ranks: int, part: int, steps: int, seed: int) -> dict[str, Any]:
    """Return what some steps with `part` numbers of the weight per rank leave on this rank.

    `start`: the weight before; `gradients`: of each step, this rank's. `weights`: of each step, the weight as it is
    when the function returns. `kept`: of each step, how many numbers the returned momentum has, 0 for no tensor, and
    how many its memory has room for. `calls`: of the last step, each collective's name and bytes.
    """
    shared, own = (torch.Generator().manual_seed(100 * seed + number) for number in (99, world.rank))
    weight = torch.randn(ranks * part, generator=shared)
    start, momentum = weight.tolist(), 0.0
    gradients, weights, kept, calls = [], [], [], []
    for _ in range(steps):
        gradient = torch.randn(ranks * part, generator=own)
        gradients.append(gradient.tolist())
        with LateCalls(world) as sent, torch.no_grad():
            momentum = function(weight, gradient, momentum, world.group, RATE, BETA)
        weights.append(weight.tolist())
        kept.append(_numbers_and_room(momentum))
        calls = sent.events
        if not isinstance(momentum, torch.Tensor):
            break
    return {"start": start, "gradients": gradients, "weights": weights, "kept": kept, "calls": calls}


def _numbers_and_room(momentum: Any) -> list[int]:
    if not isinstance(momentum, torch.Tensor):
        return [0, 0]
    return [momentum.numel(), momentum.untyped_storage().nbytes() // momentum.element_size()]
