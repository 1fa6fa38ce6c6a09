"""Buckets before anything runs: how many there are, what each costs, and what backward hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from labkit.theory.shapes import Model
from labkit.theory.traffic import FIRST_BUCKET

MIB = 2**20
GOAL_OVER_DDP = 1.03  # a bucketed step over torch's DDP
NAMES = {
    "none": "nothing sent",
    "naive": "naive",
    "flat": "flat",
    "overlapped": "overlapped",
    "bucketed": "bucketed",
    "ddp": "torch's DDP",
}


def fill(sizes: Sequence[int], cap: float, first: float = FIRST_BUCKET) -> list[list[int]]:
    """Return buckets of parameter numbers for gradients of these bytes, filled from the last one back.

    A bucket is closed once it holds `cap` bytes, the first one once it holds the smaller of `first` and `cap`, so that
    sending starts early (Li and others, "PyTorch Distributed", VLDB 2020). A gradient is never cut.
    """
    buckets: list[list[int]] = [[]]
    held, room = 0, min(first, cap)
    for number in reversed(range(len(sizes))):
        if held >= room:
            buckets.append([])
            held, room = 0, cap
        buckets[-1].append(number)
        held += sizes[number]
    return [bucket for bucket in buckets if bucket]


def messages(model: Model, strategy: str, bucket_mb: float = 0, element_bytes: int = 4) -> list[int]:
    """Return the bytes of every all-reduce of a step, in the order of sending."""
    sizes = [math.prod(shape) * element_bytes for shape in model.shapes]
    if strategy == "none":
        return []
    if strategy == "flat":
        return [sum(sizes)]
    if strategy == "naive":
        return sizes
    cap = 0 if strategy == "overlapped" else bucket_mb * MIB
    return [sum(sizes[number] for number in bucket) for bucket in fill(sizes, cap)]


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
        """Return the step's time with so many equal buckets."""
        return self.base_s + buckets * self.call_s + total_bytes / buckets / self.bytes_per_s

    def best_bytes(self, total_bytes: float) -> float:
        """Return the bucket √(s·w·o), at which both terms are equal; NaN where one of them is not seen."""
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
    """Return the least-squares weights of the chosen columns, 0 for the others (Gram–Schmidt, then back)."""
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


class Flight(NamedTuple):
    """One bucket: backward has filled it at `full_s`, its call returns at `called_s`, it travels from `start_s`."""

    size_bytes: float
    full_s: float
    called_s: float
    start_s: float
    end_s: float


def timeline(
    whole_bytes: float, parameters: int, bucket_bytes: float, backward_s: float, overhead_s: float, bytes_per_s: float
) -> list[Flight]:
    """Return every bucket's flight, in order; seconds count from the start of backward.

    Parameters are of one size and backward makes their gradients at an even pace. A bucket is closed once it holds
    `bucket_bytes`, so it holds at least one parameter. Backward stands still while a call is made, which takes
    `overhead_s`; the link moves one bucket at a time. Raises ValueError where a size, the time or the rate is not
    positive.
    """
    if min(whole_bytes, parameters, bucket_bytes, backward_s, bytes_per_s) <= 0 or overhead_s < 0:
        raise ValueError("sizes, backward's time and the rate must be above 0, and the overhead not below")
    each_bytes = whole_bytes / parameters
    held = max(1, math.ceil(bucket_bytes / each_bytes - 1e-9))  # parameters a bucket; 1e-9: what division leaves over
    flights: list[Flight] = []
    for first in range(0, parameters, held):
        size_bytes = each_bytes * min(held, parameters - first)
        before_s, free_s = (flights[-1].called_s, flights[-1].end_s) if flights else (0.0, 0.0)
        full_s = before_s + backward_s * size_bytes / whole_bytes
        start_s = max(full_s + overhead_s, free_s)
        flights.append(Flight(size_bytes, full_s, full_s + overhead_s, start_s, start_s + size_bytes / bytes_per_s))
    return flights


def exposed_s(flights: list[Flight], backward_s: float) -> float:
    """Return how much later the last bucket is there than a backward that sends nothing would end."""
    return flights[-1].end_s - backward_s


def waited_s(flights: list[Flight]) -> float:
    """Return how long full buckets waited for the link because another one was still on it, all together."""
    return sum(flight.start_s - flight.called_s for flight in flights)
