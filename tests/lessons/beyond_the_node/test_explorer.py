"""Lab 14's sliders: bars are shares of the step, the sentence names the best and the worst, and every setting draws."""

import re

import pytest

from labkit.charts.knobs import region
from labkit.charts.svg import WIDTH
from lessons.beyond_the_node.explorer import INSIDE, NAMES, explore, picture
from lessons.beyond_the_node.theory import Levels, Link, step_of

START = (100, 10, 2, 8, 1, 100, 1550, 1)


def widths(html: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', html)]


def test_a_bar_is_the_share_of_computing():
    levels = Levels(INSIDE, Link(10e-6, 12.5), 2, 8)
    found = widths(picture(*START))
    whole = WIDTH - 120 - 330
    for row, name in enumerate(NAMES):
        computing, communication = found[2 * row : 2 * row + 2]
        step = step_of(name, levels, 0.1, 1550e6, overlap=2 / 3)
        assert computing == pytest.approx(whole * step.efficiency, abs=0.06)
        assert computing + communication == pytest.approx(whole, abs=0.11)


def test_the_sentence_names_the_best_and_the_worst():
    assert "<b>16 GPUs on 2 nodes: DDP, two levels reaches 60 %</b>, FSDP 26 %." in picture(*START)
    assert "<b>8 GPUs on 1 node: all four strategies reach 100 %.</b>" in picture(100, 10, 1, 8, 1, 100, 1550, 1)


def test_more_messages_cost_more_latency():
    few, many = (widths(picture(*START[:-1], calls))[::2] for calls in (1, 1000))
    assert all(later < sooner for sooner, later in zip(few, many, strict=True))


def test_what_leaves_a_node_is_said():
    html = picture(100, 10, 2, 8, 4, 100, 1000, 1)
    assert [f"{size} MB out of a node" in html for size in ("1 875", "1 000", "8 438")] == [True] * 3


def test_every_choice_of_a_slider_draws():
    shown = explore()
    columns, html, *_ = shown.children
    knobs = [knob for column in columns.children for knob in column.children]
    assert html.value == region(picture(*START))
    for knob in knobs:
        for _, value in [(option, option) if not isinstance(option, tuple) else option for option in knob.options]:
            knob.value = value
            assert "<svg" in html.value and "nan" not in html.value
