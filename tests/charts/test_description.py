"""A chart is kept with its words: titles, axes and source, in the picture's metadata and as an HTML element."""

from __future__ import annotations

import base64
import re
from html import unescape

import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.charts.description import in_words, keep_in_notebooks


def chart(panels: int = 1) -> Figure:
    figure, axes = canvas.canvas(panels, squeeze=False)
    for number, ax in enumerate(axes.flat):
        ax.plot([1, 2], [1, 2], label='a "quoted" <line>')
        ax.set(title=f"Panel {number}", xlabel="chunks", ylabel="GB/s")
    canvas.shared_legend(figure, axes.flat)
    return canvas.finish(figure, "measured here, 4 × H200 · 2026-11-22")


def test_the_words_name_titles_axes_and_source():
    said = in_words(chart())
    for part in ("Panel 0", "GB/s against chunks", "Source: measured here, 4 × H200"):
        assert part in said
    assert "\n" not in said and said.endswith(".")


def test_of_many_panels_some_are_counted():
    said = in_words(chart(panels=9))
    assert "Panel 5" in said and "Panel 6" not in said and "and 3 more panels" in said


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("retina")
    keep_in_notebooks()
    yield shell
    InteractiveShell.clear_instance()


def test_a_notebook_keeps_the_words_with_the_picture_and_draws_it_once(shell, monkeypatch):
    drawn = []
    figure = chart()
    draw = figure.canvas.print_figure
    monkeypatch.setattr(figure.canvas, "print_figure", lambda *a, **k: drawn.append(1) or draw(*a, **k))
    data, metadata = shell.display_formatter.format(figure)
    (alt,) = re.findall(r'alt="([^"]*)"', data["text/html"])
    assert unescape(alt) == metadata["image/png"]["alt"] == in_words(figure)
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]*)"', data["text/html"])
    assert picture == data["image/png"].strip() and base64.b64decode(picture)[:4] == b"\x89PNG"
    assert metadata["image/png"]["width"] > 100 and len(drawn) == 1
    again, _ = shell.display_formatter.format(figure)
    assert again["image/png"] and len(drawn) == 2


def test_outside_a_notebook_nothing_happens():
    InteractiveShell.clear_instance()
    keep_in_notebooks()
