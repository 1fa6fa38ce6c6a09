"""Letters can be read: on every colour of the workbook, in every explorer, and in what the tests of charts draw."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import ipywidgets
import pytest
from contrast import drawn_without_letters, unreadable
from matplotlib.colors import to_hex, to_rgb

from labkit.charts import canvas
from labkit.charts.ink import BLACK, LEAST_CONTRAST, LIGHT, WHITE, contrast, ink_like, ink_on

# JupyterLab's themes: what its variables stand for.
THEMES = {
    "light": {"--jp-ui-font-color1": "#212121", "--jp-layout-color0": "#ffffff", "--jp-content-font-color1": "#212121"},
    "dark": {"--jp-ui-font-color1": "#ffffff", "--jp-layout-color0": "#111111", "--jp-content-font-color1": "#ffffff"},
}
LABS = Path(importlib.import_module("lessons").__file__ or "").parent
EXPLORERS = [
    (path.parent.name, name)
    for path in sorted(LABS.glob("*/explorer.py"))
    for name in re.findall(r"^def (explore\w*)", path.read_text(encoding="utf-8"), flags=re.M)
]


def test_the_contrast_is_that_of_the_guidelines():
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast("#777777", WHITE) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("color", [*canvas.SERIES, canvas.PUBLISHED, canvas.IDLE, "#D55E00", "#808080", "#767676"])
def test_letters_can_be_read_on_every_colour(color):
    assert contrast(color, ink_on(color)) >= LEAST_CONTRAST


@pytest.mark.parametrize("color", [*canvas.SERIES, canvas.PUBLISHED, canvas.PREDICTED, canvas.INK])
def test_letters_like_a_curve_can_be_read_and_keep_its_hue(color):
    ink = ink_like(color)
    assert min(contrast(ink, WHITE), contrast(ink, LIGHT)) >= LEAST_CONTRAST
    order = [sorted(range(3), key=lambda part: to_rgb(one)[part]) for one in (color, ink)]
    assert order[0] == order[1]
    assert ink == color.lower() or contrast(color, LIGHT) < LEAST_CONTRAST, "no darker than it has to be"


@pytest.mark.parametrize(
    ("ink", "alpha", "ground", "seen"),
    [
        (WHITE, 1.0, "#0072B2", []),
        (WHITE, 1.0, "#E69F00", ["on a bar"]),
        (BLACK, 1.0, "#E69F00", []),
        (BLACK, 0.4, "#E69F00", ["on a bar"]),
        (canvas.QUIET, 1.0, "#D9D9D9", ["on a bar"]),
    ],
)
def test_what_looks_at_charts_sees_letters_that_cannot_be_read(ink, alpha, ground, seen):
    figure, ax = canvas.canvas(height=2)
    ax.barh([0], [10], color=ground)
    texts = [ax.text(2, 0, "on a bar", color=ink, alpha=alpha), ax.text(2, 0.6, "beside it")]
    found = unreadable(texts, drawn_without_letters(canvas.finish(figure, "made here")))
    assert [line.split("'")[1] for line in found] == seen


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("lab", "name"), EXPLORERS)
def test_every_word_of_an_explorer_can_be_read(lab, name, theme):
    page = shown(getattr(importlib.import_module(f"lessons.{lab}.explorer"), name)())
    unread = [
        f"{text!r}: {ink} on {ground} is {contrast(ink, ground):.2f}"
        for text, ink, ground in letters(page, THEMES[theme])
        if contrast(ink, ground) < LEAST_CONTRAST
    ]
    assert unread == []


@pytest.mark.parametrize(("lab", "name"), EXPLORERS)
def test_an_explorer_says_what_it_is_and_every_knob_has_a_label(lab, name):
    box = getattr(importlib.import_module(f"lessons.{lab}.explorer"), name)()
    page = shown(box)
    assert 'role="region"' in page and 'aria-live="polite"' in page
    assert re.search(r'<svg[^>]* role="img" aria-label="[^"]{10,}"', page)
    assert [knob for knob in knobs(box) if not knob.description] == []


def shown(widget: ipywidgets.Widget) -> str:
    """Return the HTML that an explorer shows."""
    return "".join(part.value for part in parts(widget) if isinstance(part, ipywidgets.HTML))


def knobs(widget: ipywidgets.Widget) -> list:
    shown = (part for part in parts(widget) if isinstance(part, ipywidgets.DOMWidget) and hasattr(part, "value"))
    return [part for part in shown if not isinstance(part, ipywidgets.HTML)]


def parts(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def letters(page: str, theme: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each word of the drawings with its colour and that of what lies below it: the last box around it."""
    for variable, color in theme.items():
        page = re.sub(rf"var\({variable}, *#[0-9a-fA-F]+\)", color, page)
    for drawing in re.findall(r"<svg.*?</svg>", page, flags=re.S):
        root = ElementTree.fromstring(drawing)
        boxes: list[tuple[float, float, float, float, str]] = []
        for element in root.iter():
            if element.tag == "rect" and element.get("fill", "none") != "none":
                x, y, width, height = (float(element.get(side, 0)) for side in ("x", "y", "width", "height"))
                fill, share = color_of(element.get("fill", "")), float(element.get("fill-opacity", 1))
                boxes.append((x, y, x + width, y + height, mixed(fill, theme["--jp-layout-color0"], share)))
            if element.tag == "text" and (element.text or "").strip():
                x, y = float(element.get("x", 0)), float(element.get("y", 0)) - 3
                around = [box[4] for box in boxes if box[0] <= x <= box[2] and box[1] <= y <= box[3]]
                ink = element.get("fill", root.get("fill", ""))
                yield element.text or "", color_of(ink), color_of(around[-1] if around else theme["--jp-layout-color0"])


def mixed(color: str, paper: str, share: float) -> str:
    """Return the colour of a box through which the paper shows."""
    return to_hex([share * one + (1 - share) * other for one, other in zip(to_rgb(color), to_rgb(paper), strict=True)])


def color_of(name: str) -> str:
    return {"white": WHITE, "black": BLACK}.get(name, name)
