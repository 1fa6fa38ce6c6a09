"""Buckets as they should be filled, the overhead model found again in steps, and buckets against backward."""

import math
from itertools import pairwise

import numpy as np
import pytest

from labkit.theory.shapes import bert
from labkit.theory.sizes import MIB
from labkit.theory.traffic import bucket_count
from labkit.theory.transformer import SIZES, transformer
from lessons.ddp_from_scratch.tables import fit
from lessons.ddp_from_scratch.theory import Overhead, exposed_s, fill, messages, timeline, waited_s

MODELS = [bert(128, 2, 1000, 64), bert(768, 12, 30522, 512), *(transformer(*SIZES[name][:3]) for name in SIZES)]
COUNTS = [338, 190, 60, 12, 8]
TOTAL = 8e9


@pytest.mark.parametrize(
    ("sizes", "cap", "first", "filled"),
    [
        ([5, 5, 5], 10, 10, [[2, 1], [0]]),
        ([5, 5, 5], 10, 5, [[2], [1, 0]]),
        ([5, 5, 5], 10, 50, [[2, 1], [0]]),
        ([5, 5, 5], 0, 5, [[2], [1], [0]]),
        ([1, 100, 1, 1], 10, 10, [[3, 2, 1], [0]]),
        ([5, 5], 1000, 1000, [[1, 0]]),
        ([], 10, 10, []),
    ],
)
def test_buckets_are_filled_from_the_last_one_and_closed_when_full(sizes, cap, first, filled):
    assert fill(sizes, cap, first) == filled


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.parameters))
@pytest.mark.parametrize("cap_mb", [1, 10, 25, 1000])
def test_as_many_buckets_as_torch_would_make(model, cap_mb):
    sent = messages(model, "bucketed", cap_mb)
    assert len(sent) == bucket_count(model.shapes, cap=cap_mb * MIB)
    assert sum(sent) == 4 * model.parameters
    assert all(size >= cap_mb * MIB for size in sent[1:-1])


def test_what_each_strategy_sends():
    model = MODELS[0]
    assert messages(model, "none") == []
    assert messages(model, "flat") == [4 * model.parameters]
    assert messages(model, "naive") == messages(model, "overlapped")[::-1]
    assert len(messages(model, "naive")) == len(model.shapes)
    assert messages(model, "ddp", 1) == messages(model, "bucketed", 1)


@pytest.mark.parametrize(
    "made",
    [Overhead(0.1, 2e-5, 3e11), Overhead(0.1, 0.0, 3e11), Overhead(0.1, 2e-5, math.inf), Overhead(0.1, 0, math.inf)],
)
def test_the_fit_finds_what_made_the_steps(made):
    found = fit(COUNTS, TOTAL, [made.seconds(count, TOTAL) for count in COUNTS])
    assert found.base_s == pytest.approx(made.base_s)
    assert found.call_s == pytest.approx(made.call_s, abs=1e-9)
    assert 1 / found.bytes_per_s == pytest.approx(1 / made.bytes_per_s, abs=1e-15)
    assert found.residual < 1e-6


@pytest.mark.parametrize("base_s", [0.01 * 1.1**number for number in range(40)])
def test_what_rounding_leaves_is_no_cost(base_s):
    for made in (Overhead(base_s, 0.0, 3e11), Overhead(base_s, 2e-5, math.inf), Overhead(base_s, 0.0, math.inf)):
        found = fit(COUNTS, TOTAL, [made.seconds(count, TOTAL) for count in COUNTS])
        assert (found.call_s == 0) == (made.call_s == 0)
        assert (found.bytes_per_s == math.inf) == (made.bytes_per_s == math.inf)


def test_no_term_is_fitted_below_zero():
    falling = fit(COUNTS, TOTAL, [Overhead(0.1, -1e-5, 3e11).seconds(count, TOTAL) for count in COUNTS])
    assert falling.call_s == 0
    assert 0 < falling.residual < 0.1
    rising = fit(COUNTS, TOTAL, [Overhead(0.1, 2e-5, -3e12).seconds(count, TOTAL) for count in COUNTS])
    assert rising.bytes_per_s == math.inf
    assert rising.call_s > 0


def test_the_best_bucket_is_where_both_terms_are_equal():
    made = Overhead(0.1, 2e-5, 3e11)
    count = TOTAL / made.best_bytes(TOTAL)
    assert count * made.call_s == pytest.approx(TOTAL / count / made.bytes_per_s)
    best = made.seconds(count, TOTAL)
    assert best < min(made.seconds(count * 1.1, TOTAL), made.seconds(count / 1.1, TOTAL))
    assert math.isnan(Overhead(0.1, 0.0, 3e11).best_bytes(TOTAL))
    assert math.isnan(Overhead(0.1, 2e-5, math.inf).best_bytes(TOTAL))


def test_three_unknowns_need_three_counts():
    with pytest.raises(ValueError, match="three numbers of buckets"):
        fit([1, 2, 2], TOTAL, [0.1, 0.2, 0.2])


def test_a_cost_below_nothing_is_left_out_and_the_rest_is_fitted_again():
    """Calls that seem to save time: base and rate are then those of the best line through the bytes alone."""
    sizes = [TOTAL / count for count in COUNTS]
    seconds = [0.1 - 2e-5 * count + size / 3e11 for count, size in zip(COUNTS, sizes, strict=True)]
    per_byte_s, base_s = np.polyfit(sizes, seconds, 1)
    line = fit(COUNTS, TOTAL, seconds)
    assert line.call_s == 0
    assert (line.base_s, 1 / line.bytes_per_s) == pytest.approx((base_s, per_byte_s))


STEP = {"whole_bytes": 8e9, "parameters": 400, "backward_s": 0.2, "overhead_s": 1e-4, "bytes_per_s": 100e9}


@pytest.mark.parametrize("bucket_bytes", [1, 20e6, 50e6, 333e6, 8e9, 1e12])
def test_every_byte_travels_once_and_in_order(bucket_bytes):
    flights = timeline(**STEP, bucket_bytes=bucket_bytes)
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
        flights = timeline(**STEP, bucket_bytes=held * 20e6)
        assert waited_s(flights) == 0
        assert exposed_s(flights, 0.2) == pytest.approx(400 / held * 1e-4 + held * 20e6 / 100e9)


def test_a_slow_link_leaves_more_than_the_formula_says():
    flights = timeline(**STEP | {"bytes_per_s": 20e9}, bucket_bytes=80e6)
    formula_s = 100 * 1e-4 + 80e6 / 20e9
    assert waited_s(flights) > 0
    assert exposed_s(flights, 0.2) > formula_s
    first = flights[0].start_s
    assert exposed_s(flights, 0.2) == pytest.approx(first + 8e9 / 20e9 - 0.2), "the link never rests"


def test_one_bucket_hides_nothing():
    flights = timeline(**STEP, bucket_bytes=8e9)
    assert exposed_s(flights, 0.2) == pytest.approx(1e-4 + 8e9 / 100e9)
    assert flights[0].full_s == pytest.approx(0.2)


@pytest.mark.parametrize("wrong", ["whole_bytes", "parameters", "backward_s", "bytes_per_s", "bucket_bytes"])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        timeline(**STEP | {"bucket_bytes": 1e6, wrong: 0})
    with pytest.raises(ValueError, match="overhead"):
        timeline(**STEP | {"bucket_bytes": 1e6, "overhead_s": -1e-6})


@pytest.mark.parametrize("held", [7, 11, 14, 19, 22])
def test_a_bucket_of_whole_parameters_holds_them_and_no_more(held):
    flights = timeline(**STEP | {"parameters": 60}, bucket_bytes=held * 8e9 / 60)
    assert flights[0].size_bytes == pytest.approx(held * 8e9 / 60)
