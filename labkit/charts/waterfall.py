"""A step's speed, knob by knob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FASTER, SLOWER = canvas.SERIES[2], canvas.SERIES[5]


def waterfall_chart(*tables: pd.DataFrame, published: float | None = None, guess: Any = None) -> Figure:
    """A bar per rung, from where the one before ended, with its factor; grey where it is not resolved; a panel per run.

    `guess` is a number or a Prediction.
    """
    from matplotlib.ticker import MaxNLocator

    guess = getattr(guess, "value", guess)
    figure, axes = parts.panels(len(tables), rows=max(len(table) for table in tables))
    for ax, table in zip(axes, tables, strict=True):
        named = ax is axes[0] or list(table["knob"]) != list(tables[0]["knob"])
        parts.rows(ax, list(table["knob"]) if named else [""] * len(table))
        unit = fact(table, "unit")
        _rungs(ax, table, table[f"{unit}_per_s"], table[f"spread_{unit}_per_s"].fillna(0.0))
        if ax is axes[-1]:
            if published is not None:
                ax.axvline(published, color=canvas.PUBLISHED, ls=(0, (4, 2)), lw=1.4, label="published")
            parts.guess_line(ax, guess)
        ax.set(title=where(table), xlabel=f"{unit}/second")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(lambda value, _: units.count(value))
        lines = (published or 0, guess or 0) if ax is axes[-1] else (0,)
        ax.set_xlim(0, 1.22 * max(table[f"{unit}_per_s"].max(), *lines))
    parts.swatches(axes[0], {"first": canvas.MEASURED, "faster": FASTER, "slower": SLOWER, "within noise": canvas.IDLE})
    canvas.shared_legend(figure, axes[::-1], columns=6)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables))


def _rungs(ax: Axes, table: pd.DataFrame, rates: pd.Series, spreads: pd.Series) -> None:
    """Draw each rung's change and its factor; a rung without a rate has its status instead."""
    before, unsure = rates.ffill().shift().fillna(0.0), spreads + spreads.shift().fillna(0.0)
    for place, row in enumerate(table.itertuples()):
        rate, start = rates.iloc[place], before.iloc[place]
        if pd.isna(rate):
            parts.beside(ax, 0, place, str(row.status))
            continue
        first = pd.isna(row.times_previous)
        color = canvas.MEASURED if first else FASTER if rate >= start else SLOWER
        resolved = first or abs(rate - start) > unsure.iloc[place]
        ax.barh(place, rate - start, left=start, color=color if resolved else canvas.IDLE, height=parts.BAR)
        if abs(rate - start) < 0.01 * rates.max():  # too thin a bar to be seen
            ax.plot([rate], [place], "|", ms=16, mew=2, color=color if resolved else canvas.IDLE)
        factor = units.number(rate) if first else f"{units.number(row.times_previous)}×"
        room = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line for a given rate may pass there
        parts.beside(ax, max(rate, start), place, factor, bbox=room)
