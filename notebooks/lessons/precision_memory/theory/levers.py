"""Levers on a step's memory: what each changes, and where checkpoints cost least time within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# What a lever changes of the plain step: AdamW in one kernel, autocast to bfloat16, nothing computed twice.
LEVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "foreach AdamW": {"update": "foreach"},
    "gradients set to zero": {"set_to_none": False},
    "checkpoint every block": {"checkpoint": "every 1"},
    "checkpoint every 2nd block": {"checkpoint": "every 2"},
    "checkpoint every 4th block": {"checkpoint": "every 4"},
    "checkpoint, selective": {"checkpoint": "selective"},
    "activations to the host": {"offload": True},
    "optimizer in backward": {"in_backward": True},
    "bfloat16 weights": {"weights": "bfloat16"},
    "checkpoint + optimizer in backward": {"checkpoint": "every 1", "in_backward": True},
    "all: bfloat16, checkpoint, in backward": {"weights": "bfloat16", "checkpoint": "every 1", "in_backward": True},
}


class Block(NamedTuple):
    """One block to place a checkpoint on: MiB that it keeps, MiB of its input alone, ms of its forward."""

    kept_mib: float
    input_mib: float
    forward_ms: float


def checkpointed_peak(blocks: Sequence[Block], chosen: set[int]) -> float:
    """Return the most MiB of activations while backward walks through the blocks from the last to the first.

    A checkpointed block keeps its input only; in backward it is computed again and then keeps all, while the blocks
    before it still hold theirs.
    """
    peak = held = sum(block.input_mib if at in chosen else block.kept_mib for at, block in enumerate(blocks))
    for at in reversed(range(len(blocks))):
        if at in chosen:
            peak = max(peak, held + blocks[at].kept_mib)
        held -= blocks[at].input_mib if at in chosen else blocks[at].kept_mib
    return max(peak, 0.0)


def recomputed_ms(blocks: Sequence[Block], chosen: set[int]) -> float:
    """Return the ms that checkpoints add to a step: each checkpointed block's forward once more."""
    return sum(blocks[at].forward_ms for at in chosen)


def best_placement(blocks: Sequence[Block], budget_mib: float) -> tuple[set[int], float] | None:
    """Return the blocks to checkpoint that cost least time within the budget, and their ms; None where none fit.

    All subsets are tried: meant for up to about 14 blocks.
    """
    best: tuple[set[int], float] | None = None
    for mask in range(2 ** len(blocks)):
        chosen = {at for at in range(len(blocks)) if mask >> at & 1}
        ms = recomputed_ms(blocks, chosen)
        if (best is None or ms < best[1]) and checkpointed_peak(blocks, chosen) <= budget_mib:
            best = (chosen, ms)
    return best
