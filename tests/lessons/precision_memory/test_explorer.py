"""Lab 07's explorer: a cell per bit, the number that each format makes of it, and knobs that change the picture."""

import re

import pytest

from lessons.precision_memory.explorer import bits_picture, explore_bits
from lessons.precision_memory.theory.floats import FORMATS


@pytest.mark.parametrize("power", [-30, -7, 0, 9, 20])
def test_a_cell_per_bit(power):
    drawn = re.findall(r">([01])</text>", bits_picture(power, 1.28, False))
    assert len(drawn) == sum(1 + form.exponent + form.mantissa for form in FORMATS.values())


def test_what_each_format_makes_of_it():
    assert "beyond 448" in bits_picture(9, 1.0, False) and "beyond" not in bits_picture(8, 1.75, False)
    assert "0: below half of" in bits_picture(-30, 1.0, False)
    assert "0.010009766" in bits_picture(-7, 1.28, False), "bfloat16's 0.01"
    assert "<b>-0.01</b>" in bits_picture(-7, 1.28, True)


def test_knobs_change_the_picture():
    box = explore_bits()
    knobs = {knob.description: knob for side in box.children[0].children for knob in side.children}
    before = box.children[1].value
    knobs["power of two"].value = 3
    assert box.children[1].value != before
