"""Lab 10's explorer: what it says is the model's, and the sliders draw."""

import pytest

from labkit.charts.knobs import region
from labkit.story import units
from lessons.ddp_from_scratch.explorer import SIZES_MB, explore, picture
from lessons.ddp_from_scratch.theory import exposed_s, timeline

XL = {"model_mb": 8000, "parameters": 435, "overhead_ms": 0.1, "gb_per_s": 100, "backward_ms": 300}


@pytest.mark.parametrize("bucket_mb", [1, 25, 100, 2000, 10_000])
@pytest.mark.parametrize("gb_per_s", [3, 100])
def test_the_sentence_is_the_models(bucket_mb, gb_per_s):
    html = picture(**XL | {"gb_per_s": gb_per_s}, bucket_mb=bucket_mb)
    flights = timeline(8e9, 435, bucket_mb * 1e6, 0.3, 1e-4, gb_per_s * 1e9)
    assert f"<b>{len(flights)} buckets</b>: the last one arrives {units.seconds(exposed_s(flights, 0.3))} after" in html
    late = {mb: exposed_s(timeline(8e9, 435, mb * 1e6, 0.3, 1e-4, gb_per_s * 1e9), 0.3) for mb in SIZES_MB}
    assert f"Of the sizes below {min(late, key=lambda mb: (round(late[mb], 9), mb)):g} MB is best" in html
    assert ("which it leaves out" in html) == (gb_per_s == 3 and len(flights) > 1)
    assert f"√(s·w·o) is {units.number((8e9 * gb_per_s * 1e9 * 1e-4) ** 0.5 / 1e6)} MB" in html


def test_a_call_that_costs_nothing_has_no_best_size():
    html = picture(**XL | {"overhead_ms": 0}, bucket_mb=25)
    assert "√" not in html and "Of the sizes below 1 MB is best" in html


def test_the_sliders_draw():
    shown = explore()
    left, right = (box.children for box in shown.children[0].children)
    before = shown.children[1].value
    assert before == region(picture(**XL, bucket_mb=25))
    right[2].value = 500
    left[1].value = 50
    assert shown.children[1].value == region(picture(**XL | {"parameters": 50}, bucket_mb=500)) != before
