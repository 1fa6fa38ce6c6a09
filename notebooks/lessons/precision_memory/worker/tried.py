"""A `run_blocks` that somebody wrote, tried on small blocks that tell when they run and what they keep."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

WIDTH, INNER = 6, 24


class WatchedBlock:
    """x + tanh(x·A)·B in float64. It notes its calls, and whether the tanh of a call is in memory still."""

    def __init__(self, number: int, all_blocks: list[WatchedBlock]):
        form: Any = {"generator": torch.Generator().manual_seed(number), "dtype": torch.float64}
        sizes = (WIDTH, INNER), (INNER, WIDTH)
        self.weights = [torch.randn(size, **form).div(WIDTH).requires_grad_() for size in sizes]
        self.kept_by_call: list[Callable[[], Any]] = []
        self.all_blocks, self.together = all_blocks, 0  # in memory for a second time when this one is computed again

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        into, out = self.weights
        inner = (x @ into).tanh()
        self.kept_by_call.append(weakref.ref(inner.untyped_storage()))
        self.together = sum(again() is not None for block in self.all_blocks for again in block.kept_by_call[1:])
        return x + inner @ out

    @property
    def calls(self) -> int:
        return len(self.kept_by_call)

    @property
    def is_kept(self) -> bool:
        return any(inner() is not None for inner in self.kept_by_call)


def drive(function: Callable, _world: Any, _ranks: int, blocks: int, every: int, samples: int) -> dict[str, Any]:
    """Return what forward and backward of some blocks do.

    `form`: what is wrong with what the function returns; then there is nothing else. `error`: of the result, over its
    largest value. By block: `calls` in forward, `kept`: whether its inner tensor is there after forward, `again`: calls
    in backward, `gradients`: the error of its weights' gradients, over the largest value; None where one is missing.
    `x_gradient`: the same for x. `together`: the blocks, at most, that are computed again and in memory simultaneously.
    """
    watched: list[WatchedBlock] = []
    watched += [WatchedBlock(number, watched) for number in range(blocks)]
    x = torch.randn(samples, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(samples))
    due, due_gradients = _plain(watched, x.clone().requires_grad_())
    for block in watched:
        block.kept_by_call.clear()
    x.requires_grad_()
    y = function(list(watched), x, every)
    if not torch.is_tensor(y) or y.shape != x.shape:
        shape = f"a tensor of shape {(*y.shape,)}" if torch.is_tensor(y) else type(y).__name__
        return {"form": f"returns {shape}, not a tensor of x's shape {(*x.shape,)}"}
    calls, kept = [block.calls for block in watched], [block.is_kept for block in watched]
    error = _error(y.detach(), due)
    if y.requires_grad:
        y.square().sum().backward()
    errors = [_error(weight.grad, wanted) for weight, wanted in zip(_leaves(watched, x), due_gradients, strict=True)]
    by_block = [
        None if a is None or b is None else max(a, b) for a, b in zip(errors[:-1:2], errors[1:-1:2], strict=True)
    ]
    again = [block.calls - before for block, before in zip(watched, calls, strict=True)]
    together = max(block.together for block in watched)
    gradients = {"gradients": by_block, "x_gradient": errors[-1]}
    return {"error": error, "calls": calls, "kept": kept, "again": again, "together": together} | gradients


def _leaves(watched: list[WatchedBlock], x: torch.Tensor) -> list[torch.Tensor]:
    return [*(weight for block in watched for weight in block.weights), x]


def _plain(watched: list[WatchedBlock], x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the blocks' result without checkpoints, and the gradients of all weights and of x, last."""
    y = x
    for block in watched:
        y = block(y)
    return y.detach(), [*torch.autograd.grad(y.square().sum(), _leaves(watched, x))]


def _error(found: torch.Tensor | None, due: torch.Tensor) -> float | None:
    return None if found is None else ((found - due).abs().max() / due.abs().max()).item()
