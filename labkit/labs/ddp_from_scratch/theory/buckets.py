"""Which gradients travel together, and how many bytes each collective of a strategy then carries."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.theory.shapes import Model
from labkit.theory.traffic import FIRST_BUCKET

MIB = 2**20


def fill(sizes: Sequence[int], cap: float, first: float = FIRST_BUCKET) -> list[list[int]]:
    """Give buckets of parameter numbers for gradients of these bytes, filled from the last one back.

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
    """Give the bytes of every all-reduce of a step, in the order of sending."""
    sizes = [math.prod(shape) * element_bytes for shape in model.shapes]
    if strategy == "none":
        return []
    if strategy == "flat":
        return [sum(sizes)]
    if strategy == "naive":
        return sizes
    cap = 0 if strategy == "overlapped" else bucket_mb * MIB
    return [sum(sizes[number] for number in bucket) for bucket in fill(sizes, cap)]
