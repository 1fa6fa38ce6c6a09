"""What is stored in the notebooks: pictures with a palette that stay where they look the same, no widget, no LaTeX."""

import base64
import io

import numpy as np
from matplotlib.colors import to_rgb
from nbformat.v4 import new_output
from PIL import Image

from labkit.batch.store import COLOURS, PICTURE, WIDGET, is_same_picture, kept, with_palette
from labkit.repository import chosen_notebooks
from labkit.tables.published import published
from lessons import beyond_the_node

MOST_BYTES = 6_000_000  # of all notebooks


def png(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 60, 3))


def test_a_picture_gets_a_palette_and_white_behind_it():
    image = Image.open(io.BytesIO(base64.b64decode(with_palette(png(noise())))))
    assert image.mode == "P" and len(image.getcolors()) <= COLOURS
    clear = Image.open(io.BytesIO(base64.b64decode(with_palette(png(np.zeros((4, 4, 4)))))))
    assert clear.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_each_thin_line_of_a_stored_chart_keeps_its_colour():
    file = io.BytesIO()
    figure = beyond_the_node.published_chart(beyond_the_node.published_scaling(published("mpt_scaling")))
    figure.savefig(file, dpi=192)
    image = Image.open(io.BytesIO(base64.b64decode(with_palette(base64.b64encode(file.getvalue()).decode()))))
    stored = [color for _, color in image.convert("RGB").getcolors()]
    lines = {line.get_color() for ax in figure.axes for line in ax.lines}
    far = {line: min(np.abs(255 * np.array(to_rgb(line)) - color).max() for color in stored) for line in lines}
    assert len(lines) == 10 and max(far.values()) < 8, far


def test_pictures_are_the_same_where_they_differ_by_less_than_half_a_shade():
    drawn = noise()
    moved = drawn.copy()
    moved[0, 0] = 255 - moved[0, 0]
    assert is_same_picture(png(drawn), png(moved))
    assert not is_same_picture(png(drawn), png(np.roll(drawn, 1, axis=0)))
    assert not is_same_picture(png(drawn), png(drawn[:-1]))


def test_of_a_chart_the_picture_is_kept_once_and_of_a_widget_its_text():
    chart = {PICTURE: png(noise()), "text/html": "<img>", "text/plain": "<Figure>"}
    shown = kept(new_output("execute_result", chart, execution_count=3), 7)
    assert set(shown.data) == {PICTURE, "text/plain"} and shown.execution_count == 7
    widget = {WIDGET: {"model_id": "a1"}, "text/plain": "Knobs: ranks."}
    assert kept(new_output("display_data", widget), 1).data == {"text/plain": "Knobs: ranks."}
    table = {"text/html": "<table>", "text/plain": "a 1", "text/latex": "a"}
    assert set(kept(new_output("display_data", table), 1).data) == {"text/html", "text/plain"}


def test_the_notebooks_stay_small_enough_to_be_read():
    assert sum(path.stat().st_size for path in chosen_notebooks()) <= MOST_BYTES
