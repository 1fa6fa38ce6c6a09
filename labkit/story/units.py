"""Numbers as a reader says them: three significant digits and a unit that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from labkit.theory.sizes import GIB, MIB

NONE = "no value"


def number(value: float, digits: int = 3) -> str:
    """Return `digits` significant digits without an exponent: 1 589, 55.3, 0.0217; "no value" for NaN."""
    if value is None or not math.isfinite(value):
        return NONE
    # Before places are counted: 9.996 becomes 10.0, which has one place fewer. Adding 0.0 leaves no minus zero.
    rounded = round(value, _places(value, digits)) + 0.0
    return f"{rounded:,.{_places(rounded, digits)}f}".replace(",", " ")


def trimmed(text: str) -> str:
    """Return a number's text without the zeros that its last places may be: 3, not 3.00."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: float) -> str:
    """Return a whole number with all its digits: 65 536, where `number` would round."""
    return f"{int(value):,}".replace(",", " ")


def _places(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def _with(text: str, unit: str) -> str:
    return text if text == NONE else f"{text}{unit}"


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    """Take the largest unit of which the value, as it will be rounded, is at least one: 0.9999 s is 1.00 s."""
    reached = (step for step in steps if round(abs(value) / step[0], 3) >= 1)
    factor, unit = next(reached, steps[-1])
    return _with(number(value / factor), f" {unit}")


def seconds(value: float) -> str:
    """Return a time in s, ms or µs."""
    return _scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "µs")])


def size(value_bytes: float) -> str:
    """Return a size in binary units, as memory is counted: GiB, MiB, KiB or whole bytes."""
    if abs(value_bytes) < 1000 and value_bytes == int(value_bytes):
        return f"{count(value_bytes)} byte{'' if abs(value_bytes) == 1 else 's'}"
    return _scaled(value_bytes, [(GIB, "GiB"), (MIB, "MiB"), (1024, "KiB"), (1, "bytes")])


def exact_size(value_bytes: float) -> str:
    """Return a size as short as it is exact: 4 KiB, not 4.00 KiB."""
    value, unit = size(value_bytes).rsplit(" ", 1)
    return f"{trimmed(value)} {unit}"


def rate(gb_per_s: float) -> str:
    """Return a rate in GB/s (10^9 bytes a second), as links are counted."""
    return _with(number(gb_per_s), " GB/s")


def times(ratio: float) -> str:
    """Return a ratio as a factor: 9.8×."""
    return _with(number(ratio, 2 if ratio < 100 else 3), "×")


def percent(share: float) -> str:
    """Return a share as a percentage: 0.943 → 94 %."""
    return _with(number(100 * share, 2 if abs(share) < 0.995 else 3), " %")


def gib(value_gib: float) -> str:
    """Return a size given in GiB, in the binary unit that fits: 0.5 → 512 MiB."""
    return size(value_gib * GIB)


def span(values: Iterable[float], form: Callable[[float], str] = times) -> str:
    """Return the least and the most of the values as one says them: "1.2 to 3.4×", or "1.2×" where they are alike."""
    numbers = list(values)
    least, most = form(min(numbers)), form(max(numbers))
    return least if least == most else f"{least.removesuffix('×').removesuffix(' %')} to {most}"
