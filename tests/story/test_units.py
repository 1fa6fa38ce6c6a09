"""Numbers as a reader says them: rounding, borders between units, NaN, negative."""

import math

import pytest

from labkit.story import units

NAN = math.nan


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1589, "1 589"),
        (12345678, "12 345 678"),
        (55.31, "55.3"),
        (-55.31, "-55.3"),
        (0.0217, "0.0217"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (999.9, "1 000"),
        (0.9996, "1.00"),
        (1e-9, "0.00000000100"),
        (NAN, "no value"),
        (math.inf, "no value"),
        (None, "no value"),
    ],
)
def test_number(value, said):
    assert units.number(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.66, "1.66 s"),
        (59.99, "60.0 s"),
        (1, "1.00 s"),
        (0.9999, "1.00 s"),
        (0.9994, "999 ms"),
        (0.0217, "21.7 ms"),
        (0.0009999, "1.00 ms"),
        (0.00094, "940 µs"),
        (1e-7, "0.100 µs"),
        (0, "0 µs"),
        (-0.002, "-2.00 ms"),
        (NAN, "no value"),
        (math.inf, "no value"),
    ],
)
def test_seconds(value, said):
    assert units.seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (4 * 2**30, "4.00 GiB"),
        (2**30 - 1, "1.00 GiB"),
        (1000 * 2**20, "1 000 MiB"),
        (2**20, "1.00 MiB"),
        (1023, "1 023 bytes"),
        (4, "4 bytes"),
        (12.5, "12.5 bytes"),
        (1024, "1.00 KiB"),
        (0, "0 bytes"),
        (NAN, "no value"),
    ],
)
def test_size(value, said):
    assert units.size(value) == said


@pytest.mark.parametrize(
    ("say", "value", "said"),
    [
        (units.rate, 478.116, "478 GB/s"),
        (units.rate, 9.996, "10.0 GB/s"),
        (units.rate, NAN, "no value"),
        (units.exact_size, 4096, "4 KiB"),
        (units.exact_size, 1.5 * 2**20, "1.5 MiB"),
        (units.exact_size, 1000 * 2**20, "1 000 MiB"),
        (units.exact_size, 10, "10 bytes"),
        (units.exact_size, NAN, "no value"),
        (units.times, 9.8, "9.8×"),
        (units.times, 9.96, "10×"),
        (units.times, 1.0, "1.0×"),
        (units.times, 99.6, "100×"),
        (units.times, 456.2, "456×"),
        (units.times, NAN, "no value"),
        (units.percent, 0.943, "94 %"),
        (units.percent, 0.9949, "99 %"),
        (units.percent, 0.996, "99.6 %"),
        (units.percent, 1.0, "100 %"),
        (units.percent, 1.876, "188 %"),
        (units.percent, 0, "0 %"),
        (units.percent, -0.21 / 100, "-0.21 %"),
        (units.percent, NAN, "no value"),
    ],
)
def test_rates_ratios_and_shares(say, value, said):
    assert say(value) == said


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (1024.0, "1 024"), (65536, "65 536"), (12345678, "12 345 678")])
def test_counts_keep_their_digits(value, text):
    assert units.count(value) == text
