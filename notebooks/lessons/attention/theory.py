"""Attention before anything runs: bytes, work, and the algorithm by tiles."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

ATTENTION_NAMES = {
    "plain": "plain attention",
    "by_hand": "plain, softmax by hand",
    "compiled": "plain, compiled",
    "tiled": "tiles in PyTorch",
    "yours": "your tiles in PyTorch",
    "flash": "our FlashAttention",
    "hopper": "ours, for Hopper",
    "sdpa_flash": "SDPA-flash",
    "sdpa_cudnn": "cuDNN",
}
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
LSE_BYTES, OF_ROWS_BYTES = 4, 8  # per row: flash's log-sum-exp; in backward again, to base 2, and δ


def linear_bytes(implementation: str, moment: str, sequence: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Return the bytes of the N×d tensors at a moment, and of single numbers per row: row sums, log-sum-exp."""
    a_row = {"plain": 0, "by_hand": width, "flash": LSE_BYTES}[implementation]
    if (implementation, moment) == ("flash", "backward"):
        a_row += OF_ROWS_BYTES
    return heads * sequence * (TENSORS[implementation][moment] * head_dim * width + a_row)


def mask_bytes(implementation: str, sequence: int, causal: bool) -> int:
    """Return the bytes of the causal mask that plain attention makes: a byte per score, once for all heads."""
    return sequence**2 if causal and SQUARES[implementation]["held"] else 0


def moment_bytes(
    implementation: str,
    moment: str,
    sequence: int,
    head_dim: int,
    width: int,
    *,
    heads: int = 1,
    causal: bool = False,
    on_gpu: bool = True,
) -> int:
    """Return all bytes at a moment: squares, tensors, rows and mask; a CPU's gradient of softmax makes no dP∘P."""
    spared = not on_gpu and (implementation, moment) == ("plain", "backward")
    squares = (SQUARES[implementation][moment] - spared) * square_bytes(sequence, sequence, width, heads)
    linear = linear_bytes(implementation, moment, sequence, head_dim, width, heads)
    return squares + linear + mask_bytes(implementation, sequence, causal)


def longest(
    implementation: str, memory_bytes: float, head_dim: int, width: int, *, heads: int = 1, causal: bool = False
) -> int:
    """Return the longest sequence whose forward and backward fit in this memory, Q, K, V and dO included."""

    def needed(sequence: int) -> int:
        peak = moment_bytes(implementation, "backward", sequence, head_dim, width, heads=heads, causal=causal)
        return peak + 4 * heads * sequence * head_dim * width

    return bisect_right(range(2**30), memory_bytes, key=needed) - 1


FULL, PARTLY, SKIPPED = "full", "partly masked", "skipped"

Matrix = Sequence[Sequence[float]]


class Running(NamedTuple):
    """What a row keeps from tile to tile: m, the maximum; l, the sum of exp(score − m); o, that of exp(score − m) · v.

    Before the first tile they are −inf, 0 and zeros. After the last tile o / l is the output of attention.
    """

    maximum: float
    total: float
    output: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """One tile: its rows (queries), columns (keys) and kind, its scores (−inf where masked), and what its rows keep.

    A tile is skipped where all of it lies above the diagonal: its scores are never computed.
    """

    rows: range
    columns: range
    kind: str
    scores: tuple[tuple[float, ...], ...]
    before: tuple[Running, ...]
    after: tuple[Running, ...]

    @property
    def factors(self) -> tuple[float, ...]:
        """By how much the tile rescales what each row had summed."""
        return tuple(map(rescale, self.before, self.after))


def rescale(before: Running, after: Running) -> float:
    """Return exp(m_old − m_new): 1 where the maximum stays, 0 at a row's first tile."""
    return 1.0 if after.maximum == before.maximum else exp(before.maximum - after.maximum)


def merged(row: Running, scores: Sequence[float], values: Matrix) -> Running:
    """Return what a row keeps after one more tile: a score and a value (d numbers) for each key in it."""
    maximum = max(row.maximum, *scores)
    if maximum == -math.inf:
        return row  # every key so far is masked, and −inf − (−inf) is no number
    factor = exp(row.maximum - maximum)
    weights = [exp(score - maximum) for score in scores]
    total = factor * row.total + sum(weights)
    added = [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]
    return Running(maximum, total, tuple(factor * old + new for old, new in zip(row.output, added, strict=True)))


def tiled(scores: Matrix, values: Matrix, tile_rows: int, tile_columns: int, causal: bool) -> list[Step]:
    """Return the steps in order: block by block of rows, within each the tiles from the first key on.

    `scores`: Nq × Nk, `values`: Nk × d. Causal: query i sees keys j ≤ i. Tiles at the edge are smaller.
    """
    steps = []
    for rows in _blocks(len(scores), tile_rows):
        kept = (Running(-math.inf, 0.0, (0.0,) * len(values[0])),) * len(rows)
        for columns in _blocks(len(values), tile_columns):
            tile = tuple(tuple(-math.inf if causal and j > i else scores[i][j] for j in columns) for i in rows)
            kind, after = _kind(rows, columns, causal), kept
            if kind != SKIPPED:
                seen = values[columns.start : columns.stop]
                after = tuple(merged(row, line, seen) for row, line in zip(kept, tile, strict=True))
            steps.append(Step(rows, columns, kind, tile, kept, after))
            kept = after
    return steps


def _blocks(length: int, size: int) -> list[range]:
    return [range(start, min(start + size, length)) for start in range(0, length, size)]


def _kind(rows: range, columns: range, causal: bool) -> str:
    if not causal or columns[-1] <= rows[0]:
        return FULL
    return SKIPPED if columns[0] > rows[-1] else PARTLY


def example() -> tuple[list[list[float]], list[list[float]]]:
    """Return scores (16 × 16) and values (16 × 2) to look at: random, the same every time."""
    draw = random.Random(8)
    scores, values = (
        [[round(draw.gauss(0, 1.2), 1) + 0.0 for _ in range(width)] for _ in range(16)] for width in (16, 2)
    )  # no minus zero
    return scores, values


# Products of an N×N matrix with an N×d one, or that give one: Q·Kᵀ and P·V forward; backward Q·Kᵀ again, dO·Vᵀ, Pᵀ·dO,
# dSᵀ·Q and dS·K (FlashAttention-2, Dao 2023, algorithms 1 and 2). Plain attention, which kept P, skips the first of
# the five, but its rate is counted on the same five: rates of all implementations are then comparable.
PRODUCTS = {"forward": 2, "backward": 5, "both": 7}
PHASES = tuple(PRODUCTS)


def scores(queries: int, keys: int, causal: bool) -> int:
    """Return how many scores one head needs: all, or with a causal mask those of keys not after their query."""
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square * (square + 1) // 2 + max(queries - keys, 0) * keys


def flops(phase: str, queries: int, keys: int, head_dim: int, *, causal: bool, heads: int = 1) -> int:
    """Return the floating-point operations of a phase, two per multiply-add, for all heads (batch × heads)."""
    return 2 * PRODUCTS[phase] * scores(queries, keys, causal) * head_dim * heads


def least_bytes(phase: str, queries: int, keys: int, head_dim: int, width: int, heads: int = 1) -> int:
    """Return the bytes that a phase must move if it reads each input and writes each output once.

    `width`: bytes per element of Q, K, V, O and their gradients; the log-sum-exp of a row is a float32.
    """
    rows, columns, lse = queries * head_dim * width, keys * head_dim * width, 4 * queries
    forward = 2 * rows + 2 * columns + lse  # reads Q, K, V; writes O and L
    backward = 4 * rows + 4 * columns + lse  # reads Q, O, dO, K, V, L; writes dQ, dK, dV
    return heads * {"forward": forward, "backward": backward, "both": forward + backward}[phase]


def square_bytes(queries: int, keys: int, width: int, heads: int = 1) -> int:
    """Return the bytes of one matrix of scores for all heads: what plain attention writes, and reads again."""
    return heads * queries * keys * width
