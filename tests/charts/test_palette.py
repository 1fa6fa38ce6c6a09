"""Series can be told apart by colour-blind eyes, too: by their colours, their markers, and the names at their ends."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from labkit.charts import canvas, parts
from labkit.charts.ink import WHITE, contrast

# Deuteranopia of linear RGB: Machado, Oliveira and Fernandes, 2009, "A Physiologically-based Model for Simulation of
# Color Vision Deficiency", severity 1.0.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
# sRGB to CIE XYZ over the white D65: IEC 61966-2-1.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
CLOSEST = 17  # orange and yellow; grey was 7 from pink and 12 from green
BROWN = canvas.SERIES[6]


def lab(color: str) -> np.ndarray:
    """Return the CIE L*a*b* of a colour as deuteranopic eyes see it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(DEUTERANOPIA @ linear, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str) -> float:
    """Return the ΔE of 1976 for deuteranopic eyes."""
    return float(np.linalg.norm(lab(one) - lab(other)))


def test_the_simulation_finds_what_readers_reported():
    assert distance("#CC79A7", "#999999") == pytest.approx(7, abs=0.5)
    assert distance("#009E73", "#999999") == pytest.approx(12, abs=0.5)


@pytest.mark.parametrize(("one", "other"), [*combinations(canvas.SERIES, 2)])
def test_two_series_differ_for_deuteranopic_eyes(one, other):
    assert distance(one, other) >= (28 if BROWN in (one, other) else CLOSEST)


def test_what_took_the_place_of_grey_stands_out_from_paper_and_from_letters():
    assert contrast(BROWN, WHITE) >= 3
    assert distance(BROWN, canvas.INK) >= 28


def test_no_two_series_share_a_marker_and_none_has_that_of_a_prediction():
    looks = canvas.looks(range(9), [*canvas.SERIES, "black"])
    markers = {look["marker"] for look in looks.values()}
    assert len(markers) == 9 and "D" not in markers


def test_names_at_the_ends_stand_in_the_order_of_the_lines_and_apart():
    figure, ax = canvas.canvas()
    heights = {"low": 0.0, "third": 0.98, "first": 1.0, "second": 0.99}
    for height in heights.values():
        ax.plot([0, 1], [0, height])
    canvas.finish(figure, "made here")
    parts.names_at_ends(figure, {ax: {name: (1, height, canvas.SERIES[0]) for name, height in heights.items()}})
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts if text.get_text()}
    order = sorted(boxes, key=lambda name: boxes[name].y0)
    assert order == ["low", "third", "second", "first"]
    assert all(boxes[below].y1 <= boxes[above].y0 for below, above in pairwise(order))
    assert max(box.x1 for box in boxes.values()) <= figure.bbox.x1
