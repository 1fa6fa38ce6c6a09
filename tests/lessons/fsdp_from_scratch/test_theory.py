"""What lab 15 computes before anything runs: units that are whole, stages, calls, and what tokens hide."""

import pytest

from labkit.theory.transformer import transformer
from lessons import fsdp_from_scratch as fsdp
from lessons.fsdp_from_scratch.explorer import picture
from lessons.fsdp_from_scratch.theory import exposed_s, held_over_time, stage_bytes, tokens_to_hide, traffic, unit_sizes


def test_units_that_are_whole_while_each_one_computes():
    assert held_over_time(3, 1, 0) == [1] * 6
    assert held_over_time(3, 1, 0, release=False) == [1, 2, 3, 3, 2, 1]
    assert held_over_time(4, 2, 1) == [4, 4, 4, 2, 4, 4, 4, 2]


def test_each_stage_shards_one_thing_more_and_the_last_sends_half_as_much_again():
    stages = [stage_bytes(stage, 8.0, 4) for stage in ("ddp", "zero1", "zero2", "zero3")]
    assert [sum(size for item, size in stage.items() if item != "sent") for stage in stages] == [128, 80, 56, 32]
    assert [stage["sent"] / stages[0]["sent"] for stage in stages] == [1, 1, 1, 1.5]


def test_units_hold_every_parameter_once():
    model = transformer(64, 256, 3, 500)
    for unit, count in (("layer", 21), ("block", 3), ("model", 0)):
        outermost, others = unit_sizes(model, unit)
        assert outermost + sum(others) == model.parameters and len(others) == count


def test_a_step_gathers_each_unit_twice_and_the_outermost_one_once():
    gathers, scatters = traffic(transformer(64, 256, 3, 500), "block", 2, "bfloat16")
    assert (gathers.calls, scatters.calls) == (7, 4)
    assert gathers.bytes < 2 * scatters.bytes


def test_the_unit_s_size_cancels():
    assert tokens_to_hide(400e12, 200e9, 10**9) == pytest.approx(2000)
    assert tokens_to_hide(400e12, 200e9, 2) == pytest.approx(1000)
    rates = {"flop_per_s": 400e12, "bytes_per_s": 200e9, "call_s": 0.0}
    for units in (4, 40):
        computing, exposed = exposed_s(7e9, units, 2100, 64, **rates)
        one_unit = 2 * 7e9 / units * 63 / 64 / 200e9
        assert exposed == pytest.approx(2 * one_unit), "only the first and the last are not hidden"
        assert exposed_s(7e9, units, 500, 64, **rates)[1] > computing / 4


def test_the_explorer_names_the_limit():
    knobs = {"parameters": 7, "count": 32, "ranks": 8, "tflop_per_s": 400, "gb_per_s": 200, "call_us": 20}
    page = picture(tokens=2048, **knobs)
    assert "1\u202f750 tokens" in page or "1 750 tokens" in page
    assert "NaN" not in page and page.count("<rect") >= 16
    assert fsdp.explore().children
