"""A ring's steps add up for any N, and the explorer draws each: what is held, what has arrived, what it costs."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from labkit.charts import canvas
from labkit.charts.knobs import region
from lessons.collectives import theory as volume
from lessons.collectives.explorer import LANE, MOVED, PART, RANKS, SIZES, explore, picture
from lessons.collectives.theory import (
    ALL_GATHER,
    REDUCE_SCATTER,
    START,
    Move,
    move,
    moved,
    ring,
    sent_bytes,
    start,
    steps_of,
    steps_seconds,
)

SVG = re.compile(r"<svg.*</svg>", re.S)
LINK = (2**20, 5, 100)  # message in bytes, α in µs, β in GB/s


def drawn(html: str) -> list[ElementTree.Element]:
    """Give what the drawing is made of."""
    return list(ElementTree.fromstring(SVG.search(html)[0]))


@pytest.mark.parametrize("ranks", range(2, 17))
def test_a_ring_ends_with_every_chunk_whole(ranks):
    steps = ring(ranks)
    assert [step.number for step in steps] == list(range(2 * (ranks - 1) + 1)) and steps_of(ranks) == 2 * (ranks - 1)
    assert [step.phase for step in steps] == [START] + (ranks - 1) * [REDUCE_SCATTER] + (ranks - 1) * [ALL_GATHER]
    whole = [step.whole for step in steps]
    assert whole == [0] * (ranks - 1) + [ranks * (1 + gathered) for gathered in range(ranks)]
    for step in steps:
        counts = [count for row in step.held for chunk in row for count in chunk.values()]
        assert set(counts) == {1}, "nobody's values are counted twice"


def test_a_step_is_a_send_and_a_receive():
    assert move(0, 0, 4) == Move(0, 3, True) and move(0, 3, 4) == Move(1, 0, False)
    for rank in range(5):
        for step in range(8):
            assert move((rank + 1) % 5, step, 5).receive == move(rank, step, 5).send
    held = moved(start(2), [Move(0, 1, True), Move(1, 0, False)])
    assert held == ((Counter([0]), Counter([0, 1])), (Counter([0]), Counter([1])))
    with pytest.raises(ValueError, match="2 ranks or more"):
        ring(1)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_costs_are_the_formulas(ranks):
    steps, (size, alpha_us, rate) = steps_of(ranks), LINK
    assert sent_bytes(steps, size, ranks) == pytest.approx(volume.bus_factor("all-reduce", ranks) * size)
    whole = volume.collective_seconds("all-reduce", ranks, size, alpha_us / 1e6, rate)
    assert steps_seconds(steps, size, ranks, alpha_us / 1e6, rate) == pytest.approx(whole)


@pytest.mark.parametrize("ranks", [2, 4, 7, 16])
def test_every_step_draws_what_is_held(ranks):
    for step in ring(ranks):
        html = picture(ranks, step.number, *LINK)
        assert f"<b>Step {step.number} of {steps_of(ranks)}</b>, {step.phase}: " in html
        parts = drawn(html)
        stripes = [part for part in parts if part.get("height") == f"{LANE - 8:.1f}"]
        held = sum(len(chunk) for row in step.held for chunk in row)
        assert len(stripes) == held
        partial = [part for part in stripes if part.get("fill") == PART]
        assert held - len(partial) == ranks * step.whole
        frames = [part for part in parts if part.get("stroke") == MOVED]
        assert len(frames) == (ranks if step.number else 0)
        assert f"{step.whole} of {ranks**2} chunks are whole." in html or not step.number
        pale = [part for part in parts if part.get("opacity")]
        assert len(pale) == 2 * (steps_of(ranks) - step.number)


def test_a_step_says_what_it_does_and_costs():
    html = picture(4, 2, *LINK)
    assert (
        "reduce-scatter: rank 0 receives chunk 2 from rank 3 while it sends chunk 3 to rank 1; it adds its own values: "
        "the sum now has those of 3 ranks of 4. 0 of 16 chunks are whole."
    ) in html
    # 6 steps of 5 µs, and of 256 KiB at 100 GB/s: 2.62 µs.
    assert "sent 512 KiB in 15.2 µs; a whole all-reduce sends 1.50 MiB per rank in 45.7 µs, of which 66 % is" in html
    assert "what arrives is whole and replaces its own. 8 of 16 chunks are whole." in picture(4, 4, *LINK)
    assert "every rank has its own values of 4 chunks; none is whole." in picture(4, 0, *LINK)
    assert "A whole all-reduce sends" in picture(4, 0, *LINK)


def test_time_is_drawn_in_its_parts():
    bars = [part for part in drawn(picture(2, 2, 2**30, 100_000, 1)) if part.get("height") == "12.0"]
    widths = {
        color: sum(float(bar.get("width")) for bar in bars if bar.get("fill") == color)
        for color in (canvas.WAIT, canvas.COMMUNICATE)
    }
    transfer = 2**30 / 2 / 1e9
    assert widths[canvas.WAIT] / widths[canvas.COMMUNICATE] == pytest.approx(0.1 / transfer, rel=0.01)


def test_the_sliders_draw():
    shown = explore()
    (step, play), (ranks, size), (alpha, beta) = (box.children for box in shown.children[:3])
    assert shown.children[3].value == region(picture(4, 1, 2**20, 5, 100))
    step.value = 6
    assert shown.children[3].value == region(picture(4, 6, 2**20, 5, 100))
    ranks.value = 3
    assert step.max == play.max == 4 and step.value == 4
    size.value, alpha.value, beta.value = max(SIZES.values()), 1, 400
    assert shown.children[3].value == region(picture(3, 4, 2**30, 1, 400))
    assert (ranks.min, ranks.max) == RANKS == (2, 16)
