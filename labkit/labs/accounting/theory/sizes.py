"""Memory in one unit, bytes: the only place where a number with a unit comes in, and where one goes out."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

UNITS = {"bytes": 1, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30, "TB": 10**12, "TiB": 2**40}


def of(number: float, unit: str) -> int:
    """Give the bytes of `number` in `unit`, such as "GB" (10^9) or "GiB" (2^30); parts of a byte are cut off."""
    return int(Fraction(number) * UNITS[unit])


def number_in(unit: str, size_bytes: float) -> float:
    """Give the number of `unit` that `size_bytes` are."""
    return size_bytes / UNITS[unit]


def devices(total_bytes: int, label: float, unit: str = "GB") -> int:
    """Give how many devices hold `total_bytes`, where each holds `label`, a number of `unit`.

    To divide GiB by a label in GB is to read that label as GiB: devices(total_bytes, 80, "GiB").
    """
    return ceil(Fraction(total_bytes) / (Fraction(label) * UNITS[unit]))
