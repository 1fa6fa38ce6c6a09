"""A checkpoint by hand: blocks that keep their input only, and are computed again in backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class Checkpoint(torch.autograd.Function):
    """A block that keeps its input x; backward runs the block once more and goes back through it."""

    @staticmethod
    def forward(ctx, block, x):
        ctx.block = block
        ctx.save_for_backward(x)
        return block(x)  # autograd records nothing in here

    @staticmethod
    def backward(ctx, gradient):
        (x,) = (kept.detach().requires_grad_() for kept in ctx.saved_tensors)
        with torch.enable_grad():
            y = ctx.block(x)
        y.backward(gradient)  # adds to the gradients of the block's weights
        return None, x.grad


def run_blocks(blocks: Sequence[Callable], x: torch.Tensor, every: int) -> torch.Tensor:
    """Return what the blocks make of x, one after the other; numbers 0, every, 2·every … are checkpointed."""
    for number, block in enumerate(blocks):
        x = Checkpoint.apply(block, x) if number % every == 0 else block(x)
    return x
