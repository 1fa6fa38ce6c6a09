"""What buckets cost: every call its overhead, and the last bucket its transfer, which no backward hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Overhead:
    """A step of n buckets takes base + n·o + s/(n·w), where s bytes are sent in all, o a call and w bytes a second.

    `residual` is the largest relative miss of the fit that made it. A term that the fit does not see is 0: its `call_s`
    is 0, or its `bytes_per_s` endless.
    """

    base_s: float
    call_s: float
    bytes_per_s: float
    residual: float = 0.0

    def seconds(self, buckets: float, total_bytes: float) -> float:
        """Give the step's time with so many equal buckets."""
        return self.base_s + buckets * self.call_s + total_bytes / buckets / self.bytes_per_s

    def best_bytes(self, total_bytes: float) -> float:
        """Give the bucket √(s·w·o), at which both terms are equal; NaN where one of them is not seen."""
        if not (self.call_s > 0 and self.bytes_per_s < math.inf):
            return math.nan
        return math.sqrt(total_bytes * self.bytes_per_s * self.call_s)


def fit(counts: Sequence[float], total_bytes: float, seconds: Sequence[float]) -> Overhead:
    """Fit base, o and 1/w to steps of so many buckets by least squares; neither o nor 1/w is let below 0.

    Raises ValueError where the counts are not three or more.
    """
    if len(set(counts)) < 3:
        raise ValueError("three unknowns need three numbers of buckets or more")
    columns = [[1.0] * len(counts), list(counts), [total_bytes / count for count in counts]]
    tried = [_solved(columns, (0, *chosen), seconds) for more in range(3) for chosen in combinations((1, 2), more)]
    base, call, slope = min((one for one in tried if min(one[1:]) >= 0), key=lambda one: _misses(columns, one, seconds))
    found = Overhead(base, call, 1 / slope if slope else math.inf)
    pairs = zip(counts, seconds, strict=True)
    residual = max(abs(found.seconds(count, total_bytes) / took - 1) for count, took in pairs)
    return Overhead(found.base_s, found.call_s, found.bytes_per_s, residual)


def _solved(columns: list[list[float]], chosen: tuple[int, ...], seconds: Sequence[float]) -> list[float]:
    """Give the least-squares weights of the chosen columns, 0 for the others (Gram–Schmidt, then back)."""
    bases: list[list[float]] = []
    shares: list[list[float]] = []
    for number in chosen:
        rest, share = list(columns[number]), []
        for base in bases:
            share.append(_dot(rest, base) / _dot(base, base))
            rest = [a - share[-1] * b for a, b in zip(rest, base, strict=True)]
        bases.append(rest)
        shares.append(share)
    weights = [_dot(seconds, base) / _dot(base, base) for base in bases]
    for later in reversed(range(len(chosen))):
        for earlier in range(later):
            weights[earlier] -= shares[later][earlier] * weights[later]
    return [weights[chosen.index(number)] if number in chosen else 0.0 for number in range(3)]


def _misses(columns: list[list[float]], weights: list[float], seconds: Sequence[float]) -> float:
    fitted = [_dot(weights, row) for row in zip(*columns, strict=True)]
    return sum((a - b) ** 2 for a, b in zip(fitted, seconds, strict=True))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
