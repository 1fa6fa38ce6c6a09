"""A line through times: an exact one comes back, relative misses count, neither constant is negative."""

import math

import pytest

from labkit.theory.alpha_beta import fit


def test_an_exact_line_comes_back():
    sizes = [1e3, 1e5, 1e7, 1e9]
    line = fit(sizes, [2e-5 + size / 300e9 for size in sizes])
    assert (line.alpha_s, line.beta_gb_per_s) == pytest.approx((2e-5, 300))
    assert line.residual < 1e-9 and line.knee_bytes == pytest.approx(6e6)
    assert line.seconds(6e6) == pytest.approx(4e-5)


def test_relative_misses_count():
    # A tenth more at the second largest size: a fit of absolute misses would bend α far away.
    line = fit([1e3, 1e4, 1e8, 1e9], [1e-5, 1e-5, 1.1e-3, 1e-2])
    assert line.alpha_s == pytest.approx(1e-5, rel=0.1) and line.residual < 0.1


def test_neither_constant_is_negative():
    steep = fit([1e6, 1e9], [1e-6, 1e-2])
    assert steep.alpha_s == 0 and steep.residual > 0.1
    falling = fit([1e3, 1e6], [2e-5, 1e-5])
    assert falling.beta_gb_per_s == math.inf and 1e-5 < falling.alpha_s < 2e-5
    with pytest.raises(ValueError, match="two sizes"):
        fit([8, 8], [1, 2])
