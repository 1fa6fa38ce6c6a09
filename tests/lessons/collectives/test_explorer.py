"""Lab 09's explorer draws every step of a ring: what is held, what has arrived, what it costs."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from labkit.charts.knobs import region
from lessons.collectives.explorer import LANE, MOVED, PART, RANKS, SIZES, explore, picture
from lessons.collectives.theory import ring, steps_of

SVG = re.compile(r"<svg.*</svg>", re.S)
LINK = (2**20, 5, 100)  # message in bytes, α in µs, β in GB/s


def drawn(html: str) -> list[ElementTree.Element]:
    """Give what the drawing is made of."""
    return list(ElementTree.fromstring(SVG.search(html)[0]))


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
