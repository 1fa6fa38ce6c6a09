"""The published answers over ours."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.charts import canvas
from labkit.story import units


def published_chart(table: pd.DataFrame) -> Figure:
    """Each printed answer over ours, 1 where they are the same; a ring is ours with the mistake that was found."""
    figure, ax = canvas.canvas(height=3.4)
    ratio = table["printed"] / table["ours"]
    ax.axvline(1, color=canvas.THEORY, lw=1.2, label="ours")
    ax.hlines(table.index, 1, ratio, color=canvas.PUBLISHED, lw=1.2)
    ax.plot(ratio, table.index, "o", color=canvas.PUBLISHED, ms=8, label="published")
    made = table[table["mistake"] != ""]
    ax.plot(
        made["mistaken"] / made["ours"],
        made.index,
        "o",
        ms=13,
        mfc="none",
        mec=canvas.PREDICTED,
        mew=1.6,
        label="ours with the mistake",
    )
    for row, times in zip(table.itertuples(), ratio, strict=True):
        said = f"{_number(row.printed)} for {_number(row.ours)}"
        ax.annotate(
            said, (max(1, times), row.Index), xytext=(13, 0), textcoords="offset points", va="center", fontsize=9
        )
    ax.set_xscale("log")
    ax.xaxis.set(
        major_locator=FixedLocator([0.8, 0.9, 1, 1.2, 1.5, 2]),
        minor_locator=NullLocator(),
        major_formatter=lambda value, _: f"{value:g}",
    )
    ax.set_xlim(0.85, 2.3)
    ax.set_yticks(table.index, table["quantity"])
    ax.set_ylim(len(table) - 0.4, -0.6)
    ax.set(xlabel="times ours")
    ax.set_title("What was printed")
    ax.grid(axis="x")
    canvas.legend_above(ax)
    return canvas.finish(figure, f"{table.attrs['source']} · theory")


def _number(value: float) -> str:
    if value >= 1e9:
        return f"{units.number(value / 1e9, 4)} billion"
    return units.count(value) if value == int(value) else units.number(value)
