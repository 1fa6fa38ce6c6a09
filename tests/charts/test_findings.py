"""What a chart's words say of its marks: bars by their rows, curves by their ends, maps by their range."""

import numpy as np
import pandas as pd
import pytest

from labkit.charts import canvas, parts
from labkit.charts.description import in_words
from labkit.charts.findings import finding


def panel(draw, **labels):
    _, ax = canvas.canvas()
    draw(ax)
    ax.set(**labels)
    return ax


def bars(ax, lengths=(3.0, 12.5, 7.0), start=0.0, label="copies"):
    parts.rows(ax, ["naive", "pipelined", "scatter"])
    return parts.bars(ax, np.array(lengths), start=start, color="#0072B2", label=label)


def stacked(ax):
    bars(ax, (1.0, 1.0, 20.0), start=bars(ax), label="waits")


def curves(ax):
    ax.plot([1, 2, 8], [0.5, np.nan, 4.0], label="ring")
    ax.plot([1, 8], [2.0, 2.0])
    ax.axhline(9.0, label="limit")


def spread(ax):
    ax.plot([1, 3], [100, 300], label="ideal")
    ax.errorbar([1, 2, 3], [90, 170, 250], yerr=5, label="measured")


def printed(ax):
    parts.rows(ax, ["DDP", "naive"])
    ax.plot([700, 900], [0, 1], "^", label="printed")
    ax.plot([800], [0], "o", label="computed")


def marks(ax):
    parts.rows(ax, ["GPU 0", "GPU 1"])
    parts.by_origin(ax, pd.DataFrame({"origin": ["measured", "theory"], "ms": [4.0, 250.0]}), "ms", [0, 1])


@pytest.mark.parametrize(
    ("draw", "labels", "said"),
    [
        (bars, {"xlabel": "GB/s"}, "GB/s: from 3 (naive) to 12.5 (pipelined)"),
        (stacked, {"xlabel": "ms"}, "ms: from 4 (naive) to 27 (scatter)"),
        (curves, {"xlabel": "chunks", "ylabel": "ms"}, "ms: ring from 0.500 to 4, over chunks: 1 to 8"),
        (
            spread,
            {"xlabel": "GPUs", "ylabel": "images/s"},
            "images/s: measured from 90 to 250, ideal from 100 to 300, over GPUs: 1 to 3",
        ),
        (printed, {"xlabel": "ms"}, "ms: from 700 (DDP, printed) to 900 (naive, printed)"),
        (marks, {"xlabel": "ms"}, "ms: from 4 (GPU 0, measured) to 250 (GPU 1, theory)"),
        (lambda ax: ax.imshow([[1.0, np.nan], [3.5, 2.0]]), {}, "cells from 1 to 3.50"),
        (lambda ax: ax.bar([0, 1], [5, 2]), {"ylabel": "s"}, "s: from 2 to 5"),
        (lambda ax: ax.text(0, 0, "no run"), {}, ""),
        (lambda ax: (ax.plot([0, 1], [0, 1], label="wire"), ax.set_axis_off()), {}, ""),
    ],
)
def test_the_marks_of_a_panel_in_words(draw, labels, said):
    assert finding(panel(draw, **labels)) == said


def test_the_words_of_a_chart_say_what_its_marks_show():
    ax = panel(bars, xlabel="GB/s", title="Broadcasts")
    words = in_words(canvas.finish(ax.figure, "measured here"))
    assert "Broadcasts" in words and "from 3 (naive) to 12.5 (pipelined). Source" in words
