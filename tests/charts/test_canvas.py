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


@pytest.mark.parametrize(
    ("names", "columns", "lines"),
    [
        (5, 5, [["0", "1", "2", "3", "4"]]),
        (6, 5, [["0", "1", "2"], ["3", "4", "5"]]),
        (5, 3, [["0", "1", "2"], ["3", "4"]]),
    ],
)
def test_a_long_legend_has_lines_of_equal_length_and_is_read_line_by_line(names, columns, lines):
    figure, ax = canvas.canvas(width=12)
    for name in range(names):
        ax.plot([0, 1], [0, name], label=str(name))
    canvas.legend_above(ax, columns=columns)
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    shown = {}
    for text in legend.get_texts():
        box = text.get_window_extent()
        shown.setdefault(-round(box.y0), []).append((box.x0, text.get_text()))
    assert [[name for _, name in sorted(shown[line])] for line in sorted(shown)] == lines
    drawn = {
        text.get_text(): line.get_color() for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert drawn == {line.get_label(): line.get_color() for line in ax.get_lines()}
