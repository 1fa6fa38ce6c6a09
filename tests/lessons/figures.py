"""What holds for every chart: it draws, says units and source, has words, and its texts are apart and can be read."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from contrast import drawn_without_letters, unreadable
from matplotlib.figure import Figure

from labkit.charts.description import in_words

UNITS = ("GB/s", "GiB", "MiB", "FLOP", "second", "ms", "µs", "bytes", "%", "times", "chunks", "which", "rank")
SLACK = 1.0  # pixels that two boxes of letters may share


def checked(figure: Figure, *, drawing: bool = False) -> Figure:
    """Give the figure back after all the checks that hold for every chart."""
    assert isinstance(figure, Figure)
    assert not plt.get_fignums(), "pyplot holds the figure and would show it again"
    pixels = drawn_without_letters(figure)
    assert figure.get_supxlabel(), "no source in the footer"
    for ax in figure.axes:
        assert ax.get_title(loc="left") or ax.get_title()
        if ax.axison and not drawing:
            assert ax.has_data() or ax.texts, "an empty chart without a word"
            below = figure.axes[-1] if ax.get_shared_x_axes().joined(ax, figure.axes[-1]) else ax
            said = " ".join([below.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")])
            assert any(unit in said for unit in UNITS), f"no unit: {said!r}"
            assert below.get_xlabel() or ax.get_ylabel()
    apart(figure)
    assert unreadable(texts(figure), pixels) == []
    assert "Source: " in in_words(figure)
    return figure


def apart(figure: Figure) -> None:
    """No two texts share pixels, all lie inside the figure, and the legend covers neither axes nor a title."""
    boxes = [(text, text.get_window_extent()) for text in texts(figure) if text.get_text().strip()]
    for text, box in boxes:
        inside = (
            box.x0 >= -SLACK
            and box.y0 >= -SLACK
            and box.x1 <= figure.bbox.x1 + SLACK
            and box.y1 <= figure.bbox.y1 + SLACK
        )
        assert inside, f"{text.get_text()!r} leaves the figure"
        assert text.get_fontsize() >= 7.5
    x0, y0, x1, y1 = np.array([box.extents for _, box in boxes]).reshape(-1, 4).T
    wide, high = (np.minimum.outer(end, end) - np.maximum.outer(begin, begin) for begin, end in ((x0, x1), (y0, y1)))
    covers = np.argwhere(np.triu((wide > SLACK) & (high > SLACK), 1))
    assert not covers.size, [f"{boxes[a][0].get_text()!r} covers {boxes[b][0].get_text()!r}" for a, b in covers]
    for legend, ax in itertools.product(figure.legends, figure.axes):
        assert not overlap(legend.get_window_extent().extents, ax.get_window_extent().extents), (
            "the legend covers the axes"
        )


def texts(figure: Figure):
    """Give every text that is drawn: titles, axis labels, tick labels in view, labels in the axes, legends, footer."""
    found = list(figure.texts)
    for legend in figure.legends:
        found += legend.get_texts()
    for ax in figure.axes:
        found += [ax.title, ax._left_title, *ax.texts]
        if ax.axison:
            found += [ax.xaxis.label, ax.yaxis.label]
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                found += [
                    tick.label1
                    for tick in axis.get_major_ticks()
                    if low <= tick.get_loc() <= high and tick.label1.get_visible()
                ]
    return [text for text in found if text.get_visible()]


def overlap(one, other) -> bool:
    """Whether two boxes (x0, y0, x1, y1) share more than a hair."""
    wide, high = (min(one[2 + i], other[2 + i]) - max(one[i], other[i]) for i in (0, 1))
    return wide > SLACK and high > SLACK


def drawn(figure: Figure, axes: int) -> Figure:
    """Gives a figure back that has so many axes, each with a title and data, and a source below."""
    pixels = drawn_without_letters(figure)
    assert figure.get_supxlabel()
    assert len(figure.axes) == axes
    assert all(ax.get_title(loc="left") and (ax.has_data() or ax.texts) for ax in figure.axes)
    apart(figure)
    assert unreadable(texts(figure), pixels) == []
    assert "Source: " in in_words(figure)
    return figure
