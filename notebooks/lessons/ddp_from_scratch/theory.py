"""Buckets of gradients before anything runs: how many there are, what each costs, and how much backward hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from labkit.theory.shapes import Model
from labkit.theory.traffic import FIRST_BUCKET

MIB = 2**20
ROUNDING = 1e-12  # share of a step; costs below it come from the arithmetic of the fit
GOAL_OVER_DDP = 1.03  # longest bucketed step, in steps of torch's DDP
NAMES = {
    "none": "nothing sent",
    "naive": "naive",
    "flat": "flat",
    "overlapped": "overlapped",
    "bucketed": "bucketed",
    "ddp": "torch's DDP",
}


def fill(sizes: Sequence[int], cap: float, first: float = FIRST_BUCKET) -> list[list[int]]:
    """Return the parameter numbers of each bucket for gradients of these bytes, filled from the last parameter back.

    A bucket is full when it holds `cap` bytes or more. The first bucket is full at the smaller of `first` and `cap`, so
    that sending starts early (Li and others, "PyTorch Distributed", VLDB 2020). A gradient is never cut.
    """
    buckets: list[list[int]] = [[]]
    held_bytes, full_at = 0, min(first, cap)
    for number in reversed(range(len(sizes))):
        if held_bytes >= full_at:
            buckets.append([])
            held_bytes, full_at = 0, cap
        buckets[-1].append(number)
        held_bytes += sizes[number]
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
    """A model of a step: base + n·o + s/(n·w), for n buckets, s bytes in total, o seconds per call, w bytes per second.

    `residual` is the largest relative error of the fit. If the data show no cost per call, `call_s` is 0; if they show
    none per byte, `bytes_per_s` is infinite.
    """

    base_s: float
    call_s: float
    bytes_per_s: float
    residual: float = 0.0

    def seconds(self, buckets: float, total_bytes: float) -> float:
        """Return the step's time with this number of equal buckets."""
        return self.base_s + buckets * self.call_s + total_bytes / buckets / self.bytes_per_s

    def best_bytes(self, total_bytes: float) -> float:
        """Return the size √(s·w·o) of a bucket, at which both costs are equal; NaN if the fit has only one of them."""
        if not (self.call_s > 0 and self.bytes_per_s < math.inf):
            return math.nan
        return math.sqrt(total_bytes * self.bytes_per_s * self.call_s)


def fit(counts: Sequence[float], total_bytes: float, seconds: Sequence[float]) -> Overhead:
    """Fit base, o and 1/w to measured steps by least squares, with o and 1/w not below 0; `counts` are of buckets.

    Raises ValueError for fewer than three different counts.
    """
    if len(set(counts)) < 3:
        raise ValueError("three unknowns need three numbers of buckets or more")
    columns = [[1.0] * len(counts), list(counts), [total_bytes / count for count in counts]]
    fits = [_solved(columns, (0, *chosen), seconds) for more in range(3) for chosen in combinations((1, 2), more)]
    base, call, slope = min((one for one in fits if min(one[1:]) >= 0), key=lambda one: _misses(columns, one, seconds))
    calls_s, bytes_s = call * max(columns[1]), slope * max(columns[2])
    none_s = ROUNDING * max(seconds)
    line = Overhead(base, call if calls_s > none_s else 0.0, 1 / slope if bytes_s > none_s else math.inf)
    pairs = zip(counts, seconds, strict=True)
    residual = max(abs(line.seconds(count, total_bytes) / measured_s - 1) for count, measured_s in pairs)
    return Overhead(line.base_s, line.call_s, line.bytes_per_s, residual)


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
    """One bucket: full at `full_s`, its call returns at `called_s`, on the link from `start_s` to `end_s`."""

    size_bytes: float
    full_s: float
    called_s: float
    start_s: float
    end_s: float


def timeline(
    whole_bytes: float, parameters: int, bucket_bytes: float, backward_s: float, overhead_s: float, bytes_per_s: float
) -> list[Flight]:
    """Return every bucket's flight, in order; seconds count from the start of backward.

    Assumptions: all parameters have one size, and backward computes their gradients at an even pace. A bucket holds
    whole parameters, at least `bucket_bytes` of them. Each call stops backward for `overhead_s`. The link moves one
    bucket at a time. Raises ValueError for a size, a time or a rate that is not positive.
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
    """Return how much later the last bucket arrives than the end of a backward that sends nothing."""
    return flights[-1].end_s - backward_s


def waited_s(flights: list[Flight]) -> float:
    """Return how long full buckets waited while another bucket was on the link, added up over all buckets."""
    return sum(flight.start_s - flight.called_s for flight in flights)
