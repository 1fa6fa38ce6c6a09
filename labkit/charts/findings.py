"""What a panel's marks show, in words: its least and its greatest bar, the ends of curves, the range of a map."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter

from labkit.story import units

MOST_CURVES = 3  # of a panel with many curves


class _Mark(NamedTuple):
    """A bar's end or a point: the row or column that it is in, its series, its value."""

    place: float
    series: str
    value: float


def finding(ax: Axes) -> str:
    """Return what the marks of a panel show, with numbers; "" for a drawing, or where there is nothing to say."""
    if not ax.axison:
        return ""
    marks, along_x = _bars(ax)
    if marks:
        return _range_of(ax, marks, along_x)
    drawn = _drawn(ax)
    if _names(ax, along_x=True):  # rows with names: the values lie along x
        marks = [_Mark(y, label, x) for label, points in drawn for x, y in points]
        return _range_of(ax, marks, along_x=True) if marks else ""
    curves = [(label, points) for label, points in drawn if label and np.ptp(points[:, 0]) > 0]
    if curves:
        return _ends_of(ax, curves)
    marks = [_Mark(x, label, y) for label, points in drawn for x, y in points]
    return _range_of(ax, marks, along_x=False) if marks else _map(ax)


def _bars(ax: Axes) -> tuple[list[_Mark], bool]:
    """Return where the bars end, of stacked ones the outermost, and whether they lie along x."""
    containers = [one for one in ax.containers if isinstance(one, BarContainer)]
    along_x = any(one.orientation == "horizontal" for one in containers)
    ends: dict[float, _Mark] = {}
    for container in containers:
        for bar in container.patches:
            if along_x:
                place, end = bar.get_y() + bar.get_height() / 2, bar.get_x() + bar.get_width()
            else:
                place, end = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height()
            stacked = ends.get(round(place, 4))
            if math.isfinite(end) and (stacked is None or end > stacked.value):
                ends[round(place, 4)] = _Mark(place, "" if stacked else _label(container), end)
    return [*ends.values()], along_x


def _drawn(ax: Axes) -> list[tuple[str, np.ndarray]]:
    """Return the label and the points (x, y) of all that is drawn through or at points, what was measured first."""
    lines = {id(one[0]): _label(one) for one in ax.containers if isinstance(one, ErrorbarContainer) and one[0]}
    found = [(_label(one), one.get_offsets()) for one in ax.collections if isinstance(one, PathCollection)]
    for line in (one for one in ax.lines if one.get_transform() == ax.transData):
        label = lines.get(id(line), _label(line))
        found.insert(0 if id(line) in lines else len(found), (label, line.get_xydata()))
    points = [(label, np.ma.filled(np.ma.asarray(xy, float), np.nan)) for label, xy in found]
    finite = [(label, xy[np.isfinite(xy).all(axis=1)]) for label, xy in points if xy.ndim == 2]
    return [(label, xy) for label, xy in finite if len(xy)]


def _range_of(ax: Axes, marks: list[_Mark], along_x: bool) -> str:
    names, several = _names(ax, along_x), len({mark.series for mark in marks}) > 1

    def said(mark: _Mark) -> str:
        near = min(names, key=lambda place: abs(place - mark.place), default=math.inf)
        row = names[near] if abs(near - mark.place) < 0.5 else ""
        who = ", ".join(filter(None, [row, mark.series if several else ""]))
        return f"{_number(mark.value)}{f' ({who})' if who else ''}"

    low, high = (pick(marks, key=lambda mark: mark.value) for pick in (min, max))
    values = f"from {said(low)} to {said(high)}" if high.value > low.value else said(high)
    return f"{_unit(ax.get_xlabel() if along_x else ax.get_ylabel())}{values}"


def _ends_of(ax: Axes, curves: list[tuple[str, np.ndarray]]) -> str:
    """Return where each curve begins and ends: its leftmost and its rightmost point."""
    said = []
    for label, points in curves[:MOST_CURVES]:
        first, last = points[points[:, 0].argmin(), 1], points[points[:, 0].argmax(), 1]
        said.append(f"{label} from {_number(first)} to {_number(last)}")
    places = np.concatenate([points[:, 0] for _, points in curves])
    over = f", over {_unit(ax.get_xlabel())}{_number(places.min())} to {_number(places.max())}"
    return f"{_unit(ax.get_ylabel())}{', '.join(said)}{over}"


def _map(ax: Axes) -> str:
    """Return the range of a map's cells."""
    for drawn in (*ax.collections, *ax.images):
        values = drawn.get_array() if isinstance(drawn, QuadMesh | AxesImage) else None
        if values is not None and np.ma.count(known := np.ma.masked_invalid(values)):
            low, high = _number(float(known.min())), _number(float(known.max()))
            return f"cells from {low} to {high}" if low != high else f"cells of {low}"
    return ""


def _names(ax: Axes, along_x: bool) -> dict[float, str]:
    """Return the names of rows, or of columns, by their place; none where the ticks are numbers on a scale."""
    axis = ax.yaxis if along_x else ax.xaxis
    written, fixed = axis.get_major_formatter(), isinstance(axis.get_major_locator(), FixedLocator)
    if not (
        isinstance(written, StrCategoryFormatter) or (fixed and isinstance(written, FuncFormatter | FixedFormatter))
    ):
        return {}
    ticks = zip(axis.get_majorticklocs(), (text.get_text() for text in axis.get_ticklabels()), strict=False)
    return {float(place): " ".join(text.split()) for place, text in ticks if text.strip()}


def _label(drawn: Any) -> str:
    label = str(drawn.get_label() or "")
    return "" if label.startswith("_") else " ".join(label.split())


def _unit(label: str) -> str:
    return f"{' '.join(label.split())}: " if label.strip() else ""


def _number(value: float) -> str:
    if value == round(value) and abs(value) < 1e15:
        return units.count(value)
    return units.number(value) if abs(value) >= 1e-3 else f"{value:.3g}"
