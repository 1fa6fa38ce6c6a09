"""The canvas: a figure shows exactly once, and logarithmic axes have plain numbers."""

import nbformat
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from labkit.charts import canvas

DRAW = """
from labkit.charts import canvas
figure, ax = canvas.canvas()
ax.plot([1, 2], [3, 4])
canvas.finish(figure, "made here")
"""


@pytest.fixture(scope="module")
def cells():
    book = new_notebook(cells=[new_code_cell(DRAW), new_code_cell("figure"), new_code_cell(DRAW + "None")])
    NotebookClient(book, timeout=60, kernel_name="python3").execute()
    nbformat.validate(book)
    return book.cells


def images(cell) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_a_returned_figure_is_shown_exactly_once(cells):
    assert [images(cell) for cell in cells] == [1, 1, 0]


def test_no_other_output_comes_with_it(cells):
    assert [len(cell.outputs) for cell in cells] == [1, 1, 0]


@pytest.mark.parametrize("width", [6, 8, 9.6, 12])
def test_a_long_footer_stays_in_the_figure(width):
    parts = [
        "measured here, 4 × NVIDIA H200, 2026-11-21",
        "recorded, 4 × NVIDIA H200, 2026-11-21",
        "published: a report",
    ]
    figure, _ = canvas.canvas(width=width, height=3)
    canvas.finish(figure, " · ".join(parts * 2))
    FigureCanvasAgg(figure).draw()
    assert figure._supxlabel.get_window_extent().x0 >= 0
    assert figure.get_supxlabel().replace("\n", " · ") == " · ".join(parts * 2)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.004, 0.14, ["0.005", "0.01", "0.02", "0.05", "0.1"]),
        (0.01, 3, ["0.01", "0.1", "1"]),
        (8, 9000, ["10", "100", "1 000"]),
    ],
)
def test_logarithmic_axes_have_plain_numbers(low, high, expected):
    figure, ax = canvas.canvas()
    ax.set_xlim(low, high)
    canvas.logarithmic(ax.xaxis)
    FigureCanvasAgg(figure).draw()
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    assert [label.get_text() for at, label in ticks if low <= at <= high] == expected
    assert ax.get_xscale() == "log"


def test_finish_writes_the_source():
    figure, _ = canvas.canvas()
    assert canvas.finish(figure, "published: somewhere").get_supxlabel() == "published: somewhere"
