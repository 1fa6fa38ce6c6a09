"""Online softmax, tile by tile: FlashAttention-2's forward as a list of steps over a small matrix of scores.

FlashAttention-2 (Dao 2023, algorithm 1) never has the whole matrix: it takes its scores a tile at a time, and of each
row keeps a running maximum, sum and output (online softmax: Milakov & Gimelshein 2018, algorithm 3).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import NamedTuple

FULL, PARTLY, SKIPPED = "full", "partly masked", "skipped"

Matrix = Sequence[Sequence[float]]


class Running(NamedTuple):
    """What a row keeps from tile to tile: m, the maximum; l, the sum of exp(score − m); o, that of exp(score − m) · v.

    Before the first tile they are −inf, 0 and zeros; o / l is the attention's output once every tile was there.
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
    """Give exp(m_old − m_new): 1 where the maximum stays, 0 at a row's first tile."""
    return 1.0 if after.maximum == before.maximum else exp(before.maximum - after.maximum)


def merged(row: Running, scores: Sequence[float], values: Matrix) -> Running:
    """Give what a row keeps after one more tile: a score and a value (d numbers) for each key in it."""
    maximum = max(row.maximum, *scores)
    if maximum == -inf:
        return row  # every key so far is masked, and −inf − (−inf) is no number
    factor = exp(row.maximum - maximum)
    weights = [exp(score - maximum) for score in scores]
    total = factor * row.total + sum(weights)
    added = [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]
    return Running(maximum, total, tuple(factor * old + new for old, new in zip(row.output, added, strict=True)))


def tiled(scores: Matrix, values: Matrix, tile_rows: int, tile_columns: int, causal: bool) -> list[Step]:
    """Give the steps in order: block by block of rows, within each the tiles from the first key on.

    `scores`: Nq × Nk, `values`: Nk × d. Causal: query i sees keys j ≤ i. Tiles at the edge are smaller.
    """
    steps = []
    for rows in _blocks(len(scores), tile_rows):
        kept = (Running(-inf, 0.0, (0.0,) * len(values[0])),) * len(rows)
        for columns in _blocks(len(values), tile_columns):
            tile = tuple(tuple(-inf if causal and j > i else scores[i][j] for j in columns) for i in rows)
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


def finished(steps: Sequence[Step]) -> list[tuple[tuple[float, ...], float]]:
    """Give each row's output o / l and its log-sum-exp m + ln l, which is all that backward needs of the softmax."""
    last = {row: kept for step in steps for row, kept in zip(step.rows, step.after, strict=True)}
    return [(tuple(part / row.total for part in row.output), row.maximum + log(row.total)) for row in last.values()]


def example(length: int = 16, dimension: int = 2, seed: int = 8) -> tuple[list[list[float]], list[list[float]]]:
    """Give scores (length × length) and values (length × dimension) to look at: random, the same every time."""
    draw = random.Random(seed)

    def matrix(width: int) -> list[list[float]]:
        return [[round(draw.gauss(0, 1.2), 1) + 0.0 for _ in range(width)] for _ in range(length)]  # no minus zero

    return matrix(length), matrix(dimension)
