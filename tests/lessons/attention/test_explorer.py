"""Lab 08's explorer: every step draws, says what it does with its numbers, and shows what is done, masked, to come."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from labkit.charts import svg
from labkit.charts.knobs import region
from lessons.attention.charts import MASKED
from lessons.attention.explorer import CELL, SIZES, explore, picture
from lessons.attention.theory import SKIPPED, example, tiled

SVG = re.compile(r"<svg.*</svg>", re.S)


def drawn(html: str) -> list[ElementTree.Element]:
    """Give what the drawing is made of, its text among it."""
    return list(ElementTree.fromstring(SVG.search(html)[0]))


def filled(html: str) -> dict[str, int]:
    """Count the scores' cells by colour; the shades of all scores are one."""
    cells = [
        part for part in drawn(html) if part.tag == "rect" and part.get("width") == part.get("height") == f"{CELL:.1f}"
    ]
    fills = [part.get("fill") for part in cells]
    plain = {fill: fills.count(fill) for fill in (svg.PAPER, MASKED)}
    return plain | {"shaded": len(fills) - sum(plain.values())}


@pytest.mark.parametrize(("tile_rows", "tile_columns"), [*zip(SIZES, reversed(SIZES), strict=True), (4, 4)])
@pytest.mark.parametrize("causal", [True, False])
def test_every_step_draws_what_it_is(tile_rows, tile_columns, causal):
    steps = tiled(*example(), tile_rows, tile_columns, causal)
    for step in (1, len(steps) // 2, len(steps)):
        html, now = picture(step, tile_rows, tile_columns, causal), steps[step - 1]
        assert f"<b>Step {step} of {len(steps)}</b>, queries {now.rows[0]}–{now.rows[-1]}, keys" in html
        assert f", {now.kind}: " in html
        visited = sum(score > -9 for other in steps[:step] for line in other.scores for score in line)
        waiting = sum(score > -9 for other in steps[step:] for line in other.scores for score in line)
        skipped = sum(other.kind == SKIPPED for other in steps)
        found = filled(html)
        assert (found["shaded"], found[svg.PAPER]) == (visited, waiting)
        assert found[MASKED] + skipped * tile_rows * tile_columns == 256 - visited - waiting
        assert html.count("<path") == skipped
        lanes = re.findall(r">× (\d\.\d\d)<", html)
        assert lanes == [f"{factor:.2f}" for factor in now.factors]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ((1, 4, 4, True), "nothing was summed before, so m, l and o are this tile's own. These queries are done"),
        ((2, 4, 4, True), "all keys come after all queries: skipped, no work."),
        (
            (6, 4, 4, True),
            "query 7's maximum rises from 2.00 to 2.90, so what was summed before is multiplied by 0.41, "
            "and likewise in 2 more of these rows. These queries are done: o / l is their output",
        ),
        (
            (14, 4, 4, True),
            "query 14's maximum rises from 0.60 to 2.30, so what was summed before is multiplied by 0.18.<",
        ),
        ((11, 4, 4, True), "no maximum rises, so the tile's part is added and what was summed before stays as it is."),
    ],
)
def test_what_a_step_does_is_said(setting, sentence):
    assert f": {sentence}" in picture(*setting)


def test_rows_are_done_at_their_last_tile_only():
    done = ["These queries are done" in picture(step, 4, 4, True) for step in range(1, 17)]
    assert [step for step, said in enumerate(done, start=1) if said] == [1, 6, 11, 16]
    done = ["These queries are done" in picture(step, 4, 4, False) for step in range(1, 17)]
    assert [step for step, said in enumerate(done, start=1) if said] == [4, 8, 12, 16]


def test_the_sliders_draw():
    shown = explore()
    (step, play), (rows, columns, causal) = (box.children for box in shown.children[:2])
    assert shown.children[2].value == region(picture(1, 4, 4, True))
    step.value = 16
    assert shown.children[2].value == region(picture(16, 4, 4, True))
    rows.value = 8
    assert step.max == play.max == 8 and step.value == 8
    assert shown.children[2].value == region(picture(8, 8, 4, True))
    columns.value, causal.value = 2, False
    assert step.max == play.max == 16
    assert shown.children[2].value == region(picture(8, 8, 2, False))
