"""Every number that a notebook shows of the recorded runs: what its charts draw and what its sentences say.

`python tests/lessons/page_figures.py` stores them anew in tests/fixtures/pages; git then says what changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter

from labkit import front
from labkit.engine.recordings import replay
from labkit.repository import NOTEBOOKS, REPOSITORY
from lessons import benchmarking
from lessons.start import faults

STORED = REPOSITORY / "tests" / "fixtures" / "pages"
SHOWN_IN_FULL = 12
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d\u202f ]*(?:\.\d+)?")
NBVAL = "nbval-check-output"  # the output is stored in the notebook, and nbval compares it
OF_THIS_MACHINE = re.compile(
    r"\bhere\b[.(]|against_limit|conditions|nodes_|predictions_chart|explore|diagnose|%%answer|check\("
)


class NotRecorded(LookupError):
    """A plan that its lesson did not record: a trial of variants, a failure."""


def figures_of(notebook: Path) -> list[str]:
    """Return the lines of one notebook: of each cell that shows figures its call, then a line a series or sentence."""
    return [line for call, shown in _shown(notebook) for line in (call, *(f"    {text}" for text in shown))]


def _shown(notebook: Path) -> Iterator[tuple[str, list[str]]]:
    """Run a notebook's cells with recorded runs in place of launches; yield each call and what it shows."""
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type != "code" or cell.source.startswith("%%"):
            continue
        try:
            value = _last_value(cell.source, names)
        except (NotRecorded, NameError):  # no recorded run, and what would be made of it
            continue
        elsewhere = NBVAL in cell.metadata.get("tags", []) or OF_THIS_MACHINE.search(cell.source)
        if not elsewhere and (lines := [" ".join(line.split()) for line in _lines(value)]):
            yield cell.source.splitlines()[-1].strip(), lines


def _last_value(source: str, names: dict[str, Any]) -> Any:
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(last, "cell", "eval"), names) if last else None


def recorded_run(plan: Any, recorded: str | None = None, **_limits: float) -> Any:
    """Return the run that the plan's lesson reads for a plan of this name."""
    paths = import_module(f"lessons.{plan.lab}").RECORDED
    paths = {paths.rpartition("/")[2]: paths} if isinstance(paths, str) else paths
    if plan.name not in paths or plan.name == "trial":
        raise NotRecorded(plan.name)
    return replay(recorded or paths[plan.name])


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Markdown):
        yield f"says {' '.join(_numbers_in(value.data or ''))}"
    elif isinstance(value, Figure):
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


def replace_launches(replace: Any) -> None:
    """Have notebooks read recorded runs: `replace(module, name, value)` sets an attribute, as monkeypatch does."""
    replace(front, "launch", recorded_run)
    replace(front, "launch_or_replay", recorded_run)
    replace(faults, "launch", recorded_run)
    replace(front, "check_parameters", lambda *_, **__: None)
    replace(benchmarking, "export_trace", lambda *_: None)  # into the run's folder


if __name__ == "__main__":
    replace_launches(setattr)
    STORED.mkdir(exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        stored_file(path).write_text("\n".join(figures_of(path)) + "\n", encoding="utf-8")
