"""Buckets of gradients against backward: when each is full, when it travels, and what is left when backward ends."""

from __future__ import annotations

import math
from typing import NamedTuple


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
    """Give every bucket's flight, in order; seconds count from the start of backward.

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
    """Give how much later the last bucket is there than a backward that sends nothing would end."""
    return flights[-1].end_s - backward_s


def waited_s(flights: list[Flight]) -> float:
    """Give how long full buckets waited for the link because another one was still on it, all together."""
    return sum(flight.start_s - flight.called_s for flight in flights)
