"""How many operations attention takes, and how many bytes it must move, by phase."""

from __future__ import annotations

# Products of an N×N matrix with an N×d one, or that give one: Q·Kᵀ and P·V forward; backward Q·Kᵀ again, dO·Vᵀ, Pᵀ·dO,
# dSᵀ·Q and dS·K (FlashAttention-2, Dao 2023, algorithms 1 and 2). Plain attention, which kept P, skips the first of
# the five, but its rate is counted on the same five: rates of all implementations are then comparable.
PRODUCTS = {"forward": 2, "backward": 5, "both": 7}
PHASES = tuple(PRODUCTS)


def scores(queries: int, keys: int, causal: bool) -> int:
    """Give how many scores one head needs: all, or with a causal mask those of keys not after their query."""
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square * (square + 1) // 2 + max(queries - keys, 0) * keys


def flops(phase: str, queries: int, keys: int, head_dim: int, *, causal: bool, heads: int = 1) -> int:
    """Give the floating-point operations of a phase, two a multiply-add, for all heads (batch × heads)."""
    return 2 * PRODUCTS[phase] * scores(queries, keys, causal) * head_dim * heads


def least_bytes(phase: str, queries: int, keys: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Give the bytes that a phase must move if it reads each input and writes each output once.

    `width`: bytes an element of Q, K, V, O and their gradients; the log-sum-exp of a row is a float32.
    """
    rows, columns, lse = queries * head_dim * width, keys * head_dim * width, 4 * queries
    forward = 2 * rows + 2 * columns + lse  # reads Q, K, V; writes O and L
    backward = 4 * rows + 4 * columns + lse  # reads Q, O, dO, K, V, L; writes dQ, dK, dV
    return heads * {"forward": forward, "backward": backward, "both": forward + backward}[phase]


def square_bytes(queries: int, keys: int, width: int, heads: int = 1) -> int:
    """Give the bytes of one matrix of scores for all heads: what plain attention writes, and reads again."""
    return heads * queries * keys * width
