"""Where attention's memory goes: N×d tensors, and how many N×N matrices each implementation has at once."""

from __future__ import annotations

from bisect import bisect_right

from labkit.labs.attention.theory.work import square_bytes

# "kept": what autograd saves for backward, of it K and V the caller's. The others are beyond Q, K, V and dO: at most in
# forward, "held" between forward and backward, at most in backward.
MOMENTS = ("kept", "forward", "held", "backward")
# N×N matrices. Plain attention's softmax keeps its result P, which P·V keeps, too; written by hand, it also keeps
# exp(S − max), which the division needs again. Forward at its peak: S and P, by hand exp(S − max), too. Backward: P,
# dP, torch's dP∘P and dS; by hand exp(S − max), dP, and four that torch makes for the gradient of the row sums.
SQUARES = {
    "plain": {"kept": 1, "forward": 2, "held": 1, "backward": 4},
    "by_hand": {"kept": 2, "forward": 3, "held": 2, "backward": 6},
    "flash": {"kept": 0, "forward": 0, "held": 0, "backward": 0},
}
# N×d tensors. Plain keeps Q/√d, K and V; it holds Q/√d and O, and dV at backward's peak. Flash keeps Q, K, V and O; it
# holds O, and dQ, dK and dV in backward.
TENSORS = {
    "plain": {"kept": 3, "forward": 1, "held": 2, "backward": 3},
    "by_hand": {"kept": 3, "forward": 2, "held": 2, "backward": 3},
    "flash": {"kept": 4, "forward": 1, "held": 1, "backward": 4},
}
LSE_BYTES, OF_ROWS_BYTES = 4, 8  # a row: flash's log-sum-exp; in backward again, to base 2, and δ


def inputs_bytes(queries: int, keys: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Give the bytes of Q, K and V."""
    return heads * (queries + 2 * keys) * head_dim * width


def squares_bytes(implementation: str, moment: str, queries: int, keys: int, width: int, heads: int = 1) -> int:
    """Give the bytes of the N×N matrices that an implementation has at a moment (`MOMENTS`)."""
    return SQUARES[implementation][moment] * square_bytes(queries, keys, width, heads)


def linear_bytes(implementation: str, moment: str, sequence: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Give the bytes of the N×d tensors at a moment, and of what there is one of a row: row sums, log-sum-exp."""
    a_row = {"plain": 0, "by_hand": width, "flash": LSE_BYTES}[implementation]
    if (implementation, moment) == ("flash", "backward"):
        a_row += OF_ROWS_BYTES
    return heads * sequence * (TENSORS[implementation][moment] * head_dim * width + a_row)


def mask_bytes(implementation: str, sequence: int, causal: bool) -> int:
    """Give the bytes of the causal mask that plain attention makes: a byte a score, once for all heads."""
    return sequence**2 if causal and SQUARES[implementation]["held"] else 0


def moment_bytes(
    implementation: str, moment: str, sequence: int, head_dim: int, width: int, *, heads: int = 1, causal: bool = False
) -> int:
    """Give all bytes at a moment: squares, tensors, rows and mask."""
    squares = squares_bytes(implementation, moment, sequence, sequence, width, heads)
    linear = linear_bytes(implementation, moment, sequence, head_dim, width, heads)
    return squares + linear + mask_bytes(implementation, sequence, causal)


def needed_bytes(
    implementation: str, sequence: int, head_dim: int, width: int, *, heads: int = 1, causal: bool = False
) -> int:
    """Give the bytes of forward and backward at their peak, Q, K, V and dO included."""
    peak = moment_bytes(implementation, "backward", sequence, head_dim, width, heads=heads, causal=causal)
    return peak + 4 * heads * sequence * head_dim * width


def longest(
    implementation: str, memory_bytes: float, head_dim: int, width: int, *, heads: int = 1, causal: bool = False
) -> int:
    """Give the longest sequence whose forward and backward fit in this memory."""

    def needed(sequence: int) -> int:
        return needed_bytes(implementation, sequence, head_dim, width, heads=heads, causal=causal)

    return bisect_right(range(2**30), memory_bytes, key=needed) - 1
