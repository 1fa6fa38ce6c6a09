"""Buckets of gradients before anything runs: how many there are, what each costs, and how much backward hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labkit.theory.shapes import Model
from labkit.theory.sizes import MIB
from labkit.theory.step_memory import Shape, step_moments
from labkit.theory.traffic import FIRST_BUCKET

NAMES = {
    "none": "nothing sent",
    "naive": "naive",
    "flat": "flat",
    "overlapped": "overlapped",
    "bucketed": "bucketed",
    "ddp": "torch's DDP",
    "your_flat": "flat, yours",
    "your_overlapped": "overlapped, yours",
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


def messages(model: Model, strategy: str, bucket_mb: float = 0) -> list[int]:
    """Return the bytes of every all-reduce of a step in float32, in the order of sending."""
    sizes, strategy = [4 * math.prod(shape) for shape in model.shapes], strategy.removeprefix("your_")
    if strategy == "none":
        return []
    if strategy == "flat":
        return [sum(sizes)]
    if strategy == "naive":
        return sizes
    cap = 0 if strategy == "overlapped" else bucket_mb * MIB
    return [sum(sizes[number] for number in bucket) for bucket in fill(sizes, cap)]


def needed_bytes(shape: Shape, strategy: str) -> int:
    """Return the bytes that a rank holds at the fullest moment of a steady step, AdamW in one kernel.

    Flat copies all gradients when they are complete. Buckets are there from the start, while forward keeps its
    activations. torch's DDP makes its buckets anew in its second step, and NCCL lets the first ones go when it next
    looks at its work, up to a quarter of a second later: at most there are two sets of them.
    """
    at_loss, end_of_backward, update = (sum(items.values()) for items in step_moments(shape, "steady step", "fused"))
    gradients = 4 * shape.parameters
    beside = {"bucketed": gradients, "ddp": 2 * gradients}.get(strategy, 0)
    copied = gradients if strategy.removeprefix("your_") == "flat" else 0
    return max(at_loss + beside, end_of_backward, update + copied)


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
