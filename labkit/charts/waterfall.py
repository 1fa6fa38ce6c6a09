"""A step's speed, knob by knob."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.charts import canvas
from labkit.provenance import sources, where
from labkit.story import units


def waterfall_chart(*tables: pd.DataFrame, published: float | None = None, guess=None) -> Figure:
    """A bar a rung, from where the one before ended, with its factor; grey where it is not resolved; a panel a run.

    `guess` is a number or a Prediction.
    """
    guess = getattr(guess, "value", guess)
    height = 1.5 + 0.42 * max(len(table) for table in tables)
    figure, axes = canvas.canvas(len(tables), height=height, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        unit = table.attrs["unit"]
        rates = table[f"{unit}_per_s"]
        spreads = table[f"spread_{unit}_per_s"].fillna(0.0)
        before, unsure = rates.ffill().shift().fillna(0.0), spreads + spreads.shift().fillna(0.0)
        for place, row in enumerate(table.itertuples()):
            rate, start = rates.iloc[place], before.iloc[place]
            if pd.isna(rate):
                ax.text(0, place, f" {row.status}", va="center", fontsize=9)
                continue
            first = pd.isna(row.times_previous)
            color = canvas.MEASURED if first else canvas.SERIES[2] if rate >= start else canvas.SERIES[5]
            clear = first or abs(rate - start) > unsure.iloc[place]
            ax.barh(place, rate - start, left=start, color=color if clear else canvas.IDLE, height=0.6)
            factor = units.number(rate) if first else f"{units.number(row.times_previous)}×"
            room = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line for a given rate may pass there
            ax.annotate(
                factor,
                (max(rate, start), place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                bbox=room,
            )
        last = axes[0, -1] is ax
        for value, name, color in (
            (published, "published", canvas.PUBLISHED),
            (guess, "your prediction", canvas.PREDICTED),
        ):
            if value is not None and last:
                ax.axvline(value, color=color, ls=(0, (4, 2)), lw=1.4, label=name)
        knobs = (
            table["knob"] if ax is axes[0, 0] or list(table["knob"]) != list(tables[0]["knob"]) else [""] * len(table)
        )
        ax.set(yticks=range(len(table)), yticklabels=knobs, title=where(table), xlabel=f"{unit}/second")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(lambda value, _: units.number(value, 4) if value else "0")
        ax.set_xlim(0, 1.22 * max(rates.max(), *(v for v in (published, guess, 0) if v is not None)))
        ax.set_ylim(len(table) - 0.5, -0.5)
        ax.grid(axis="x")
    if published is not None or guess is not None:
        canvas.shared_legend(figure, axes[0][::-1])
    return canvas.finish(figure, sources(*tables))
