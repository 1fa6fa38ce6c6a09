"""Where attention's memory goes: N×d tensors, and how many N×N matrices each implementation has at once."""

from __future__ import annotations

from labkit.labs.attention.theory.work import square_bytes

# How many N×N matrices are there at once. "held": kept from forward for backward. Plain attention's softmax keeps its
# result P, which P·V keeps, too; written by hand, it also keeps exp(S − max), which the division needs again.
# Forward at its peak: S and P. Backward: P, dP and dS.
SQUARES = {
    "plain": {"forward": 2, "held": 1, "backward": 3},
    "by_hand": {"held": 2},
    "flash": {"forward": 0, "held": 0, "backward": 0},
}


def inputs_bytes(queries: int, keys: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Give the bytes of Q, K and V."""
    return heads * (queries + 2 * keys) * head_dim * width


def squares_bytes(implementation: str, moment: str, queries: int, keys: int, width: int, heads: int = 1) -> int:
    """Give the bytes of the N×N matrices that an implementation has at a moment: "forward", "held" or "backward"."""
    return SQUARES[implementation][moment] * square_bytes(queries, keys, width, heads)


def longest(memory_bytes: float, width: int, heads: int = 1, implementation: str = "plain") -> int:
    """Give the longest sequence whose N×N matrices fit in this memory, forward and backward."""
    most = max(SQUARES[implementation].values())
    return int((memory_bytes / (most * width * heads)) ** 0.5)
