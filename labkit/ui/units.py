"""Numbers as a reader says them: three significant digits and a unit that fits."""

from __future__ import annotations

import math

GB, GIB, MIB = 1e9, 2**30, 2**20


def number(value: float, digits: int = 3) -> str:
    """Give `digits` significant digits without an exponent: 1589, 55.3, 0.0217; "no value" for NaN."""
    if value is None or not math.isfinite(value):
        return "no value"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, places):,.{min(places, 6)}f}".replace(",", " ")


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{number(value / factor)} {unit}"
    factor, unit = steps[-1]
    return f"{number(value / factor)} {unit}"


def seconds(value: float) -> str:
    """Give a time in s, ms or µs."""
    return _scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "µs")])


def size(value_bytes: float) -> str:
    """Give a size in binary units, as memory is counted: GiB, MiB, KiB or bytes."""
    return _scaled(value_bytes, [(GIB, "GiB"), (MIB, "MiB"), (1024, "KiB"), (1, "bytes")])


def rate(gb_per_s: float) -> str:
    """Give a rate in GB/s (10^9 bytes a second), as links are counted."""
    return f"{number(gb_per_s)} GB/s"


def times(ratio: float) -> str:
    """Give a ratio as a factor: 9.8×."""
    return f"{number(ratio, 2 if ratio < 100 else 3)}×"


def percent(share: float) -> str:
    """Give a share as a percentage: 0.943 → 94 %."""
    return f"{number(100 * share, 2 if abs(share) < 0.995 else 3)} %"
