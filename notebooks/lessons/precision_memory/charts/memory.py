"""Five sizes' times, the ledger beside the peaks, memory in time, and levers by memory and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.charts.allocations import memory_layers
from labkit.charts.ink import ink_on
from labkit.charts.labels import Labels
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.precision_memory.theory.memory import ITEMS, PHASES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRECISION_COLORS = {"float32": canvas.SERIES[0], "tf32": canvas.SERIES[4], "bfloat16": canvas.SERIES[2]}
PRECISION_NAMES = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16 mixed"}
PHASE_NAMES = {
    "no_grad": "forward, no_grad",
    "forward": "forward, kept",
    "first step": "first step",
    "steady step": "steady step",
}
FLOAT32_WEIGHTS = canvas.SERIES[4]
_DOT = 15  # points


def speed_chart(*tables: pd.DataFrame) -> Figure:
    """How many times as fast as float32 each precision is, by size; a panel per phase and table, 1 marked."""
    from matplotlib.lines import Line2D

    phases = ("forward", "backward")
    figure, grid = canvas.canvas(len(phases), len(tables), height=0.9 + 2.1 * len(tables), squeeze=False, sharex=True)
    most = max((table["gain"] + _spread(table)).max() for table in tables)
    for row, table in zip(grid, tables, strict=True):
        for ax, phase in zip(row, phases, strict=True):
            _gains(ax, table[table["phase"] == phase])
            ax.set_title(f"{_origin(table)}: {phase}")
    for ax in grid[-1]:
        ax.set(xlabel="times float32's speed", xlim=(0, 1.06 * most))
    handles = [
        Line2D([], [], color=color, marker="o", ls="", label=PRECISION_NAMES[name])
        for name, color in PRECISION_COLORS.items()
        if name != "float32"
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=9)
    return canvas.finish(figure, sources(*tables))


def _origin(table: pd.DataFrame) -> str:
    return "Published, A100" if fact(table, "source").startswith("published") else where(table)


def _gains(ax: Axes, table: pd.DataFrame) -> None:
    models = list(dict.fromkeys(table["model"]))
    parts.rows(ax, models)
    others = table[table["precision"] != "float32"]
    names = list(dict.fromkeys(others["precision"]))
    for number, name in enumerate(names):
        own = others[others["precision"] == name]
        places = [models.index(model) + 0.22 * (number - (len(names) - 1) / 2) for model in own["model"]]
        style = {"fmt": "o", "ms": 6, "color": PRECISION_COLORS[name], "ecolor": canvas.INK, "capsize": 2}
        ax.errorbar(own["gain"], places, xerr=_spread(own), **style)
    ax.axvline(1, color=canvas.INK, lw=1)


def _spread(table: pd.DataFrame) -> pd.Series:
    """Return the half-widths of the gains; 0 where a report gives none."""
    return table["spread_gain"] if "spread_gain" in table else 0.0 * table["gain"]


def ledger_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Stacked bars by item, a bar per phase and sequence, a panel per precision; diamonds mark measured peaks.

    `guess` (GiB, a number or a Prediction) is a line in the last panel.
    """
    precisions = list(dict.fromkeys(table["precision"]))
    sequences = sorted(set(table["sequence"]))
    rows = [(phase, sequence) for phase in PHASES for sequence in sequences]
    figure, axes = parts.panels(len(precisions), rows=len(rows), row_height=0.3, sharey=True, sharex=True)
    scale, unit = ledgers.memory_unit(table["predicted"].max())
    for ax, precision in zip(axes, precisions, strict=True):
        own = table[table["precision"] == precision]
        parts.rows(ax, [f"{PHASE_NAMES[phase]}, {sequence}" for phase, sequence in rows], fontsize=9)
        places = [rows.index((row.phase, row.sequence)) for row in own.itertuples()]
        ledgers.held_bars(ax, places, {item: own[item].to_numpy() / scale for item in ITEMS})
        ledgers.peak_marks(ax, places, own["peak"] / scale, size=26)
        for edge in range(len(sequences), len(rows), len(sequences)):
            ax.axhline(edge - 0.5, color=canvas.HAIRLINE, lw=1)
        ax.set(title=f"{where(table)}: {PRECISION_NAMES[precision]}", xlabel=f"most memory in use, {unit}")
        ax.set_xlim(0, 1.06 * max(table["peak"].max(), table["predicted"].max()) / scale)
    parts.guess_line(axes[-1], guess, 1024 / scale)
    canvas.legend_above(axes[-1], columns=4)
    return canvas.finish(figure, sources(table))


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """Memory in use by kind over the first step and a steady one, a panel per precision; phases stand on top."""
    figure, grid = canvas.canvas(1, len(tables), height=0.9 + 2.9 * len(tables), squeeze=False)
    axes = list(grid[:, 0])
    scale, unit = ledgers.memory_unit(max(table["allocated_mib"].max() for table in tables))
    names = {"base": "parameters", "activations": "activations and copies of weights"}
    for ax, table in zip(axes, tables, strict=True):
        memory_layers(ax, table, scale, names)
        most = units.size(table["allocated_mib"].max() * units.MIB)
        precision = PRECISION_NAMES[fact(table, "precision")]
        ax.set(
            xlabel="ms", ylabel=unit, title=f"{where(table)}: {precision}, context {fact(table, 'sequence')}: {most}"
        )
    canvas.shared_legend(figure, axes, columns=6)
    return canvas.finish(figure, sources(*tables))


def pareto_chart(table: pd.DataFrame) -> Figure:
    """Every lever by the peak and the time of a steady step; lines join those that no other lever beats."""
    from matplotlib.lines import Line2D

    figure, ax = canvas.canvas(height=4.8)
    shown = table.dropna(subset=["peak_mib", "step_ms"]).reset_index(drop=True)
    scale, unit = ledgers.memory_unit(shown["peak_mib"].max())
    xs, ys, spread = shown["peak_mib"] / scale, shown["step_ms"], shown["spread_step_ms"]
    for column, color in (("best_exact", FLOAT32_WEIGHTS), ("best", canvas.MEASURED)):
        best = pd.DataFrame({"x": xs[shown[column]], "y": ys[shown[column]]}).sort_values("x")
        ax.plot(best["x"], best["y"], color=color, lw=1.2, drawstyle="steps-post", zorder=1)
    for number, (_, row) in enumerate(shown.iterrows()):
        style = {"fmt": "o", "ms": _DOT, "color": _color(row), "ecolor": canvas.INK}
        name = f"{number + 1}  {row['lever']}"
        dot, *_ = ax.errorbar(xs[number], ys[number], yerr=spread[number], label=name, **style)
        dot.set_zorder(3)  # over the spread of every other
    lowest = np.maximum(ys - spread, ys / 2).min()  # of times that differ much, half the range may exceed the median
    ax.set(xlim=(0, 1.12 * xs.max()), ylim=(0.85 * lowest, 1.2 * (ys + spread).max()))
    canvas.logarithmic(ax.yaxis)
    title = f"{where(table)}: context {fact(table, 'sequence')}"
    ax.set(title=title, xlabel=f"peak of a steady step, {unit}", ylabel="ms per step")
    ax.grid(axis="both")
    _, labels = ax.get_legend_handles_labels()
    named = [Line2D([], [], ls="", marker="") for _ in labels]
    lines = {"unbeaten": canvas.MEASURED, "unbeaten, float32 weights": FLOAT32_WEIGHTS}
    named += [Line2D([], [], color=color, lw=2) for color in lines.values()]
    figure.legend(named, [*labels, *lines], loc="outside right center", fontsize=8.5, handlelength=1)
    canvas.finish(figure, sources(table))
    _numbered(ax, shown, xs)
    return figure


def _numbered(ax: Axes, shown: pd.DataFrame, xs: pd.Series) -> None:
    """Write each dot's number into it; the numbers of dots that touch stand beside them."""
    labels = Labels(ax, list(xs), list(shown["step_ms"]), [_DOT] * len(shown))
    for group in labels.groups():
        if len(group) == 1:
            labels.inside(group[0], str(group[0] + 1), fontsize=8, color=ink_on(_color(shown.iloc[group[0]])))
        else:
            labels.beside(group, ", ".join(str(at + 1) for at in group), fontsize=8)


def _color(lever: pd.Series) -> str:
    return canvas.MEASURED if lever["best"] else FLOAT32_WEIGHTS if lever["best_exact"] else canvas.PUBLISHED
