"""Every number that the charts of a notebook draw of recorded runs: nbval compares the text that is stored, no picture.

`python tests/lessons/page_figures.py` stores them anew in tests/fixtures/pages; git then says what changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter

from labkit.repository import NOTEBOOKS, REPOSITORY

STORED = REPOSITORY / "tests" / "fixtures" / "pages"
SHOWN_IN_FULL = 12
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d\u202f ]*(?:\.\d+)?")
OF_STUDENTS = re.compile(r"predictions_chart|explore|diagnose|%%answer|check\(")


def figures_of(notebook: Path) -> list[str]:
    """Return the lines of one notebook: of each cell that shows figures its call, then a line a series."""
    return [line for call, shown in _shown(notebook) for line in (call, *(f"    {text}" for text in shown))]


def _shown(notebook: Path) -> Iterator[tuple[str, list[str]]]:
    """Run a notebook's cells at size=recorded; yield each call that draws, and what it draws."""
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type != "code" or OF_STUDENTS.search(cell.source):
            continue
        value = _last_value(cell.source, names)
        if "parameters" in cell.metadata.get("tags", []):
            names["size"] = "recorded"
        if lines := [" ".join(line.split()) for line in _lines(value)]:
            yield cell.source.splitlines()[-1].strip(), lines


def _last_value(source: str, names: dict[str, Any]) -> Any:
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(last, "cell", "eval"), names) if last else None


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Figure):
        for ax in value.axes:
            yield f"panel {ax.get_title(loc='left') or ax.get_title()} | {ax.get_xlabel()} | {ax.get_ylabel()}"
            yield from _drawn(ax)


def _drawn(ax: Axes) -> Iterator[str]:
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_formatter(), FixedFormatter):
            yield f"ticks {' | '.join(label.get_text() for label in axis.get_ticklabels())}"
    for line in ax.lines:
        yield f"line {_label(line)} x {_numbers(line.get_xdata())} y {_numbers(line.get_ydata())}"
    if bars := [patch.get_bbox().extents for patch in ax.patches if isinstance(patch, Rectangle)]:
        yield f"bars {' / '.join(_numbers(side) for side in np.transpose(bars))}"
    for collection in ax.collections:
        yield f"{type(collection).__name__} {_label(collection)} {_corners(collection)}"
    if numbers := [number for text in ax.texts for number in _numbers_in(text.get_text())]:
        yield f"written {' '.join(numbers)}"


def _numbers_in(text: str) -> list[str]:
    return [re.sub(r"\s", "", number) for number in NUMBER.findall(text)]


def _corners(collection: Collection) -> str:
    """Return where the markers of a scatter stand, or the corners of lines and areas."""
    corners = collection.get_offsets()
    if not isinstance(collection, PathCollection):
        corners = np.concatenate([path.vertices for path in collection.get_paths()] or [np.empty((0, 2))])
    return " / ".join(_numbers(side) for side in np.transpose(corners))


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _numbers(values: Any) -> str:
    """Return the values, with four digits; of many their count, and the first, last, least, largest and their mean."""
    try:
        numbers = np.asarray(values, float)
    except ValueError:
        return " | ".join(map(str, values))
    if len(numbers) <= SHOWN_IN_FULL:
        return " ".join(f"{number:.4g}" for number in numbers)
    finite = numbers[np.isfinite(numbers)]
    summary = (finite[0], finite[-1], finite.min(), finite.max(), finite.mean())
    return f"{len(numbers)} from {' '.join(f'{number:.4g}' for number in summary)}"


def stored_file(notebook: Path) -> Path:
    """Return the file that keeps a notebook's figures."""
    return STORED / f"{notebook.stem}.txt"


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        stored_file(path).write_text("\n".join(figures_of(path)) + "\n", encoding="utf-8")
