"""Lab 12's explorer: bars are the ledger's, crossings the theory's, and every slider changes the picture."""

import re
from dataclasses import replace
from math import log10

import pytest

from labkit.charts.knobs import region
from lessons.accounting.explorer import EXAMPLE, HEIGHT, LEFT, RIGHT, TOP, WIDTH, explore, picture
from lessons.accounting.theory import NODE, XXL, Mesh, Model, held, times


@pytest.mark.parametrize(("mesh", "tokens", "gb"), [(Mesh(16, 4), 32768, 95), (Mesh(8, 8), 5000, 80), (NODE, 1000, 95)])
def test_the_bar_is_what_a_device_holds(mesh, tokens, gb):
    html = picture(XXL, mesh, tokens, gb)
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="6.0" width="([\d.]+)"', html)]
    total = float(sum(held(XXL, -(-tokens // mesh.fsdp), mesh.fsdp, mesh.tensor).values())) / 1e9
    end = LEFT + (WIDTH - LEFT - RIGHT) * min(1, total / (2 * gb))
    assert bars[-1][0] + bars[-1][1] == pytest.approx(end, abs=0.2)
    assert ("✔ fits" in html) == (total <= gb) and ("✘ does not fit" in html) == (total > gb)
    assert ("»" in html) == (total > 2 * gb)


def test_curves_run_from_a_thousand_tokens_to_a_million():
    html = picture(XXL, NODE, 32768, 95)
    drawn = re.findall(r'y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)" stroke="(#\w+)" stroke-width="2"', html)
    assert len(drawn) == 3
    ends = [times(NODE, XXL, tokens) for tokens in (1e3, 1e6)]
    for place, (low, high, _) in enumerate(drawn):
        wanted = [TOP + HEIGHT * (3 - log10(1e3 * end[place])) / 5 for end in ends]
        assert [float(low), float(high)] == pytest.approx(wanted, abs=0.1)


@pytest.mark.parametrize(("tokens", "reached"), [(6000, "communication-bound"), (7000, "compute-bound")])
def test_what_a_batch_reaches_is_said(tokens, reached):
    html = picture(XXL, NODE, tokens, 95)
    assert f"<b>{reached}</b>" in html and "Compute-bound from 6 460 tokens" in html
    assert html.count("<circle") == 1


def test_where_no_batch_is_enough():
    html = picture(Model(4096, 8192, 32), Mesh(1, 32, bytes_per_s=1e11), 20000, 80)
    assert "<b>No batch is compute-bound</b>" in html and "<circle" not in html
    assert ">weights<" not in html, "one FSDP shard gathers nothing"


def test_every_slider_draws():
    shown = explore()
    groups, html = shown.children[0].children, shown.children[1]
    assert html.value == region(picture(EXAMPLE, replace(NODE, flop_per_s=989e12, bytes_per_s=478e9), 8 * 1024, 141))
    knobs = [knob for group in groups for knob in group.children]
    assert len(knobs) == 12
    for knob in knobs:
        before, value = html.value, knob.value
        options = getattr(knob, "options", None)
        knob.value = next(option for option in options if option != value) if options else value + 1
        assert html.value != before, knob.description
        knob.value = value
