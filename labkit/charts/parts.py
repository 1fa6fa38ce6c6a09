"""The few parts that figures are composed of: panels, rows with bars and marks, values beside them, lanes of spans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_like
from labkit.provenance import fact, fact_or, is_recorded, sources
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.62  # of a row's height
LANE = 0.34


def panels(count: int, rows: int = 0, *, row_height: float = 0.42, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, `count` side by side; `rows` rows of bars set the height."""
    if rows:
        options.setdefault("height", 1.5 + row_height * rows)
    figure, axes = canvas.canvas(count, squeeze=False, **options)
    return figure, list(axes[0])


def panel_each(entries: Iterable[Any], **options: Any) -> tuple[Figure, list[tuple[Axes, Any]]]:
    """Return a figure and a panel with each entry, side by side; `options` are those of `panels`.

    Entries: what `distinct` or `run_panels` returns, or `table.groupby(…, sort=False)`, whose entries are a value and
    its rows.
    """
    shown = list(entries)
    figure, axes = panels(len(shown), **options)
    return figure, list(zip(axes, shown, strict=True))


def close(figure: Figure, *tables: pd.DataFrame | None, note: str = "", columns: int = 5) -> Figure:
    """Return the figure with one legend of all its panels above it, and with a footer: `note`, the tables' sources."""
    canvas.shared_legend(figure, figure.axes, columns)
    return canvas.finish(figure, note + sources(*tables))


@dataclass(frozen=True)
class Layer:
    """One run's table as a panel shows it: its colour and name, and whether it stands behind another run."""

    table: pd.DataFrame
    recorded: bool
    behind: bool = False

    @property
    def color(self) -> str:
        """The colour of what was measured here, or of what was recorded."""
        return canvas.RECORDED if self.recorded else canvas.MEASURED

    @property
    def label(self) -> str:
        return "recorded run" if self.recorded else "this run"


def distinct(entries: Iterable[Any], *facts: str) -> tuple[Any, ...]:
    """Return what a chart draws of each run, once: a replay of the recorded run is the recorded run.

    An entry is a table, or a sequence that begins with one; None and an empty sequence are left out. Tables of one run
    that differ in a fact named by `facts` all stay.
    """
    kept: dict[tuple[Any, ...], Any] = {}
    for entry in entries:
        table = entry if entry is None or isinstance(entry, pd.DataFrame) else next(iter(entry), None)
        if table is not None:
            kept.setdefault((fact(table, "source"), *(fact_or(table, name, None) for name in facts)), entry)
    return tuple(kept.values())


def run_panels(here: pd.DataFrame | None, recorded: pd.DataFrame | None, *sizes: str) -> list[list[Layer]]:
    """Return what each panel of a chart draws: this run first, the recorded one beside it or behind it.

    Two runs share a panel where their tables agree in their size (small, middle or full), in their number of ranks, and
    in the facts named by `sizes`, such as "bytes": then the recorded run comes first, since it is drawn behind.
    Otherwise each run has its own panel. Where one of them is None, or `here` is a replay of the recorded run, there is
    one panel.
    """
    if recorded is None:
        return [[Layer(here, recorded=False)]] if here is not None else []
    if here is None or len(distinct((here, recorded))) == 1:
        return [[Layer(recorded, recorded=True)]]
    names = ("small", "middle", "ranks", *sizes)
    agree = all(fact_or(here, name, False) == fact_or(recorded, name, False) for name in names)
    this_run = Layer(here, recorded=is_recorded(here))
    if agree:
        return [[Layer(recorded, recorded=True, behind=True), this_run]]
    return [[this_run], [Layer(recorded, recorded=True)]]


def whose(layers: Sequence[Layer]) -> str:
    """Return whose run a panel shows, to begin its title with, and its size where it is a middle one."""
    size = ", middle size" if fact_or(layers[-1].table, "middle", False) else ""
    return "This run, the recorded one behind" if len(layers) > 1 else layers[0].label.capitalize() + size


def workers(table: pd.DataFrame) -> str:
    """Return "GPUs", or what stands in for them in a small run."""
    return "CPU processes" if fact(table, "small") else "GPUs"


def lines(
    ax: Axes,
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    looks: Mapping[Any, dict[str, Any]],
    *,
    spread: str | None = None,
    **style: Any,
) -> None:
    """Draw column `y` over column `x`, a line per value of column `by` in the table's order.

    `looks`: by value, what differs (color, marker, label, …); without a label the value names the line. `style` is
    common to all. `spread`: the column of whiskers.
    """
    for value, line in table.groupby(by, sort=False):
        look: dict[str, Any] = {"label": value} | style | looks[value]
        if spread is None:
            ax.plot(line[x], line[y], **look)
        else:
            ax.errorbar(line[x], line[y], yerr=line[spread], capsize=3, **look)


def knob_axis(
    ax: Axes,
    values: Iterable[float],
    label: str,
    form: Callable[[float], str] = units.count,
    *,
    most: int = 12,
    **text: Any,
) -> None:
    """Make the horizontal axis logarithmic, and name a knob's values on it by `form`.

    Where they are more than `most`, every second or third is named, the largest among them.
    """
    places = sorted(set(values))
    step = max(1, math.ceil(len(places) / most))
    named = places[(len(places) - 1) % step :: step]
    ax.set_xscale("log", base=2)
    ax.set_xticks(named, [form(value) for value in named], **text)
    ax.xaxis.minorticks_off()
    ax.set_xlabel(f"{label} (log)")


def rows(ax: Axes, labels: Sequence[str], **text: Any) -> range:
    """Return the axes a row per label, the first on top, and a vertical grid; return the rows' places."""
    places = range(len(labels))
    ax.set_yticks(places, labels, **text)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="x")
    return places


def bars(ax: Axes, lengths: Any, *, start: Any = 0.0, color: Any, label: str | None = None, spread: Any = None) -> Any:
    """Draw a bar per row, from `start`; `spread` adds a whisker. Return where the bars end."""
    whiskers = {} if spread is None else {"xerr": spread, "ecolor": canvas.INK, "capsize": 3}
    ax.barh(range(len(lengths)), lengths, left=start, color=color, height=BAR, label=label, **whiskers)
    return start + lengths


def beside(ax: Axes, x: float, y: float, text: str, **options: Any) -> None:
    """Write a value to the right of a mark, clear of it."""
    style = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 9} | options
    ax.annotate(text, (x, y), **style)


def names_at_ends(figure: Figure, ends: dict[Axes, dict[str, tuple[float, float, str]]], size: float = 8.5) -> Figure:
    """Write each line's name beside its end (x, y, colour), one above another; return the figure, which is finished."""
    figure.draw_without_rendering()  # lays the figure out: heights are known from here on
    for ax, lines in ends.items():
        order = sorted(lines, key=lambda name: lines[name][1])
        heights = np.array([ax.transData.transform(lines[name][:2])[1] for name in order]) * 72 / figure.dpi
        steps = 1.4 * size * np.arange(len(order))
        places = np.maximum.accumulate(heights - steps) + steps
        places -= np.mean(places - heights)
        for name, up in zip(order, places - heights, strict=True):
            x, y, color = lines[name]
            beside(ax, x, y, name, xytext=(24, up), fontsize=size, color=ink_like(color))
            line = {"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkA": 0, "shrinkB": 4}
            beside(ax, x, y, "", xytext=(22, up), arrowprops=line)
    return figure


def own_scales(axes: Sequence[Any]) -> str:
    """Return the footer's beginning for panels that stand side by side and share no scale: nothing for one panel."""
    return "each panel has its own scale · " if len(axes) > 1 else ""


def guessed(guess: Any) -> float | None:
    """Return the number of a prediction, or the number as it is; None of a skipped one."""
    return getattr(guess, "value", guess)


def guess_mark(ax: Axes, x: float, guess: Any, scale: float = 1.0) -> None:
    """Draw the reader's prediction as a diamond at x; a skipped one, or None, draws nothing."""
    if (value := guessed(guess)) is not None:
        ax.plot(x, value * scale, "D", color=canvas.PREDICTED, zorder=4, label="your prediction")


def guess_line(ax: Axes, guess: Any, scale: float = 1.0) -> None:
    """Draw the reader's prediction as a vertical line; a skipped one, or None, draws nothing."""
    if (value := guessed(guess)) is not None:
        ax.axvline(value * scale, color=canvas.PREDICTED, ls=(0, (3, 2)), lw=1.6, label="your prediction")


def lane(ax: Axes, row: int, spans: Iterable[tuple[float, float]], *, color: str, below: bool = False) -> None:
    """Draw spans (start, length) in the upper half of a row, or the lower."""
    ax.broken_barh(list(spans), (row + (0.02 if below else -0.36), LANE), facecolors=color, linewidth=0)


def swatches(ax: Axes, colors: dict[str, str]) -> None:
    """Add a legend entry per name with its colour; nothing is drawn."""
    for name, color in colors.items():
        ax.plot([], [], color=color, lw=6, label=name)
