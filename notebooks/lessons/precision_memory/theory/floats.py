"""Floating-point formats: their spacing, rounding and bits, and what sums of many small numbers become."""

from __future__ import annotations

import math
from dataclasses import dataclass

VALUE, STEPS = 0.01, 1000  # the sum of the lesson: 0.01 a thousand times


@dataclass(frozen=True)
class Format:
    """A binary format with a sign, `exponent` and `mantissa` bits, biased by 2^(exponent−1) − 1 as IEEE 754 has it.

    `finite_only`: the highest exponent holds numbers too, all but the last, and there is no infinity (float8 e4m3).
    """

    name: str
    exponent: int
    mantissa: int
    finite_only: bool = False

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def largest(self) -> float:
        """The largest finite number."""
        top = 2.0**self.bias
        if self.finite_only:  # one exponent more, one mantissa less
            return 2 * top * (2 - 2.0 ** (1 - self.mantissa))
        return top * (2 - 2.0**-self.mantissa)

    @property
    def least_normal(self) -> float:
        """The smallest number with a full mantissa."""
        return 2.0 ** (1 - self.bias)

    @property
    def least(self) -> float:
        """The smallest number above zero."""
        return self.least_normal * 2.0**-self.mantissa

    def spacing(self, value: float) -> float:
        """Return the distance from a number's size to the next larger one: one unit in the last place (ulp)."""
        size = max(abs(value), self.least_normal)
        return 2.0 ** (math.frexp(size)[1] - 1 - self.mantissa)

    def rounded(self, value: float) -> float:
        """Return the nearest number of the format, ties to the even one; infinity beyond the largest."""
        if not math.isfinite(value):
            return value
        step = self.spacing(value)
        near = math.copysign(round(abs(value) / step) * step, value)
        return near if abs(near) <= self.largest else math.copysign(math.inf, value)

    def bits(self, value: float) -> tuple[str, str, str]:
        """Return sign, exponent and mantissa of the nearest number, as strings of 0 and 1."""
        near = self.rounded(value)
        sign = "1" if math.copysign(1.0, near) < 0 else "0"
        if math.isinf(near):
            last = "1" * self.mantissa if self.finite_only else "0" * self.mantissa  # e4m3 has a NaN there
            return sign, "1" * self.exponent, last
        size = abs(near)
        if size < self.least_normal:
            power, fraction = 0, round(size / self.least)
        else:
            power = math.frexp(size)[1] - 1 + self.bias
            fraction = round((size / 2.0 ** (power - self.bias) - 1) * 2**self.mantissa)
        return sign, f"{power:0{self.exponent}b}", f"{fraction:0{self.mantissa}b}"


FORMATS = {
    form.name: form
    for form in (
        Format("float32", 8, 23),
        Format("tf32", 8, 10),
        Format("float16", 5, 10),
        Format("bfloat16", 8, 7),
        Format("float8 e4m3", 4, 3, finite_only=True),
        Format("float8 e5m2", 5, 2),
    )
}
# How a sum is made: the format of the running sum, the format of the term, and the algorithm.
WAYS = {
    "float32 + float32": ("float32", "float32", "plain"),
    "float16 + float16": ("float16", "float16", "plain"),
    "float32 + float16": ("float32", "float16", "plain"),
    "float32 + float32(float16)": ("float32", "float16", "plain"),
    "bfloat16 + bfloat16": ("bfloat16", "bfloat16", "plain"),
    "float16, Kahan": ("float16", "float16", "kahan"),
    "bfloat16, Kahan": ("bfloat16", "bfloat16", "kahan"),
    "float16, blocks of 32": ("float16", "float16", "blocks"),
    "bfloat16, blocks of 32": ("bfloat16", "bfloat16", "blocks"),
}
BLOCK = 32


def running(way: str) -> list[float]:
    """Return the sum of VALUE after each of STEPS terms, by simulated rounding; `way` is one of WAYS.

    "kahan" keeps what each addition lost and adds it to the next term (Kahan, 1965). "blocks" sums 32 terms, then the
    blocks' sums: its value between two blocks is the total so far plus the open block.
    """
    total_name, term_name, algorithm = WAYS[way]
    total, term = FORMATS[total_name], FORMATS[term_name].rounded(VALUE)
    if algorithm == "kahan":
        return kahan(total, term)
    block = BLOCK if algorithm == "blocks" else STEPS
    sums, done, held = [], 0.0, 0.0
    for step in range(1, STEPS + 1):
        held = total.rounded(held + term)
        sums.append(total.rounded(done + held))
        if step % block == 0:
            done, held = sums[-1], 0.0
    return sums


def kahan(form: Format, term: float) -> list[float]:
    sums, held, lost = [], 0.0, 0.0
    for _ in range(STEPS):
        add = form.rounded(term - lost)
        new = form.rounded(held + add)
        lost = form.rounded(form.rounded(new - held) - add)
        held = new
        sums.append(held)
    return sums


def stalls_at(form: str) -> float:
    """Return the sum from which adding VALUE changes nothing: half the spacing is more than the term."""
    held_in = FORMATS[form]
    term = held_in.rounded(VALUE)
    power = 2.0 ** (math.frexp(term)[1] - 1)
    while held_in.spacing(power) / 2 < term:
        power *= 2
    return power
