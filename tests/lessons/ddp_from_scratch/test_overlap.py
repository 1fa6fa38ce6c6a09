"""Buckets against backward: every byte travels once, calls cost what they cost, and the formula holds where it may."""

import math
from itertools import pairwise

import pytest

from lessons.ddp_from_scratch.theory import exposed_s, timeline, waited_s

MODEL = {"whole_bytes": 8e9, "parameters": 400, "backward_s": 0.2, "overhead_s": 1e-4, "bytes_per_s": 100e9}


@pytest.mark.parametrize("bucket_bytes", [1, 20e6, 50e6, 333e6, 8e9, 1e12])
def test_every_byte_travels_once_and_in_order(bucket_bytes):
    flights = timeline(**MODEL, bucket_bytes=bucket_bytes)
    assert sum(one.size_bytes for one in flights) == pytest.approx(8e9)
    held = max(1, math.ceil(bucket_bytes / 20e6))
    assert len(flights) == math.ceil(400 / held)
    assert all(one.size_bytes == pytest.approx(20e6 * min(held, 400)) for one in flights[:-1])
    for one in flights:
        assert one.called_s - one.full_s == pytest.approx(1e-4)
        assert one.end_s - one.start_s == pytest.approx(one.size_bytes / 100e9)
        assert one.start_s >= one.called_s
    for before, after in pairwise(flights):
        assert after.start_s >= before.end_s
        assert after.full_s - before.called_s == pytest.approx(0.2 * after.size_bytes / 8e9)


def test_a_quick_link_leaves_the_calls_and_the_last_bucket():
    for held in (1, 4, 20):
        flights = timeline(**MODEL, bucket_bytes=held * 20e6)
        assert waited_s(flights) == 0
        assert exposed_s(flights, 0.2) == pytest.approx(400 / held * 1e-4 + held * 20e6 / 100e9)


def test_a_slow_link_leaves_more_than_the_formula_says():
    flights = timeline(**MODEL | {"bytes_per_s": 20e9}, bucket_bytes=80e6)
    formula_s = 100 * 1e-4 + 80e6 / 20e9
    assert waited_s(flights) > 0
    assert exposed_s(flights, 0.2) > formula_s
    first = flights[0].start_s
    assert exposed_s(flights, 0.2) == pytest.approx(first + 8e9 / 20e9 - 0.2), "the link never rests"


def test_one_bucket_hides_nothing():
    flights = timeline(**MODEL, bucket_bytes=8e9)
    assert exposed_s(flights, 0.2) == pytest.approx(1e-4 + 8e9 / 100e9)
    assert flights[0].full_s == pytest.approx(0.2)


@pytest.mark.parametrize("wrong", ["whole_bytes", "parameters", "backward_s", "bytes_per_s", "bucket_bytes"])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        timeline(**MODEL | {"bucket_bytes": 1e6, wrong: 0})
    with pytest.raises(ValueError, match="overhead"):
        timeline(**MODEL | {"bucket_bytes": 1e6, "overhead_s": -1e-6})


@pytest.mark.parametrize("held", [7, 11, 14, 19, 22])
def test_a_bucket_of_whole_parameters_holds_them_and_no_more(held):
    flights = timeline(**MODEL | {"parameters": 60}, bucket_bytes=held * 8e9 / 60)
    assert flights[0].size_bytes == pytest.approx(held * 8e9 / 60)
