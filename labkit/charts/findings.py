"""What a panel's marks show, in words: its least and its greatest bar, the ends of curves, the range of a map."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer
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
    if not marks and (curves := _curves(ax)):
        return curves
    if not marks:
        marks, along_x = _points(ax)
    if marks:
        return _range_of(ax, marks, along_x)
    return _map(ax)


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


def _points(ax: Axes) -> tuple[list[_Mark], bool]:
    """Return the points of scattered marks, and whether rows with names, not columns, tell them apart."""
    along_x = bool(_names(ax, along_x=True))
    marks = []
    for points in (one for one in ax.collections if isinstance(one, PathCollection)):
        for x, y in np.ma.filled(np.ma.asarray(points.get_offsets(), float), np.nan):
            place, value = (y, x) if along_x else (x, y)
            if math.isfinite(value):
                marks.append(_Mark(place, _label(points), float(value)))
    return marks, along_x


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


def _curves(ax: Axes) -> str:
    """Return where each curve with a name begins and ends, the leftmost and the rightmost point."""
    said, ends = [], []
    for line in ax.lines:
        xy = np.ma.filled(np.ma.asarray(line.get_xydata(), float), np.nan)
        points = xy[np.isfinite(xy).all(axis=1)]
        if _label(line) and len(points) > 1 and line.get_transform() == ax.transData and np.ptp(points[:, 0]) > 0:
            (x0, y0), (x1, y1) = points[[points[:, 0].argmin(), points[:, 0].argmax()]]
            said.append(f"{_label(line)} from {_number(y0)} to {_number(y1)}")
            ends += [x0, x1]
    if not said:
        return ""
    over = f", over {_unit(ax.get_xlabel())}{_number(min(ends))} to {_number(max(ends))}"
    return f"{_unit(ax.get_ylabel())}{', '.join(said[:MOST_CURVES])}{over}"


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
