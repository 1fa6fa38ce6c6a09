"""How an all-reduce grows with the number of ranks: by the ring's two terms, as measured, and as published."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from labkit.charts import canvas
from labkit.labs.collectives.charts.axes import BACKENDS, DASHES, factor_bars, named
from labkit.labs.collectives.theory.volume import bus_factor, hops

COLLECTIVE, CLOCK = "all-reduce", "in flight"
MARKERS = {"nccl": "o", "gloo": "s"}
STYLES = {"latency": "-", "bandwidth": DASHES}


def growth_chart(here: pd.DataFrame, *recorded: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """An all-reduce's time over that of two ranks, by ranks: the smallest message left, the largest right.

    The lines are the ring's: 2(N − 1) hops of a small message, 2(N − 1)/N of a large message's bytes. A run in which
    no two numbers of ranks were timed stays out. `published`: `published_times`, in grey.
    """
    figure, axes = canvas.canvas(2, height=4.2, sharey=True)
    tables = (here, *recorded)
    most = max(8, *(int(table["ranks"].max()) for table in tables))
    counts = np.arange(2, most + 1)
    ring = {
        "latency": [hops(COLLECTIVE, n) / hops(COLLECTIVE, 2) for n in counts],
        "bandwidth": [bus_factor(COLLECTIVE, n) / bus_factor(COLLECTIVE, 2) for n in counts],
    }
    for ax, pick in zip(axes, (min, max), strict=True):
        for name, values in ring.items():
            ax.plot(counts, values, color=canvas.THEORY, lw=1.5, ls=STYLES[name], label=f"a ring's {name}")
        for table in tables:
            where, color = ("here", canvas.MEASURED) if table is here else ("recorded", canvas.RECORDED)
            _measured(ax, table, pick, where, color)
        title = f"{'Smallest' if pick is min else 'Largest'}: {named(pick(here['bytes']))}"
        if published is not None:
            _published(ax, published, pick)
            title += f" (report: {pick(published['megabytes']):g} MB)"
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set(xlabel="ranks", title=title)
        ax.grid(True)
    axes[0].set_yscale("log", base=2)
    axes[0].yaxis.set(major_locator=FixedLocator([1, 2, 4, 8, 16]), minor_locator=NullLocator())
    axes[0].set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes[0].set_ylim(0.8, max(ring["latency"][-1] * 1.3, axes[0].get_ylim()[1]))
    axes[0].set_ylabel("times as long as with 2 ranks (log)")
    shown = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(list(shown.values()), list(shown), loc="outside upper right", ncols=7, fontsize=9)
    drawn = [table for table in tables if not _grown(table).empty] + ([] if published is None else [published])
    return canvas.finish(figure, " · ".join(dict.fromkeys(table.attrs["source"] for table in drawn or tables)))


def _grown(table: pd.DataFrame) -> pd.DataFrame:
    """Give the all-reduces in flight of the backends that were timed with two ranks and with more."""
    rows = table[(table["collective"] == COLLECTIVE) & (table["clock"] == CLOCK)].dropna(subset="median_us")
    counts = rows.groupby("backend")["ranks"]
    return rows[(counts.transform("min") == 2) & (counts.transform("max") > 2)]


def _measured(ax: Axes, table: pd.DataFrame, pick, where: str, color: str) -> None:
    for backend, own in _grown(table).groupby("backend", sort=False):
        line = own[own["bytes"] == pick(own["bytes"])].sort_values("ranks")
        first = line["median_us"].iloc[0]
        bars = factor_bars(line["median_us"] / first, line["spread_us"] / line["median_us"])
        ax.errorbar(
            line["ranks"],
            line["median_us"] / first,
            yerr=bars,
            color=color,
            marker=MARKERS[backend],
            ms=5,
            lw=1.2,
            capsize=2,
            label=f"{where}, {BACKENDS[backend]}",
        )


def _published(ax: Axes, published: pd.DataFrame, pick) -> None:
    for backend, rows in published.groupby("backend", sort=False):
        line = rows[rows["megabytes"] == pick(published["megabytes"])].sort_values("processes")
        if len(line):
            ax.plot(
                line["processes"],
                line["seconds"] / line["seconds"].iloc[0],
                color=canvas.PUBLISHED,
                lw=1.2,
                marker=MARKERS[backend],
                ms=5,
                ls=DASHES,
                label=f"report, {BACKENDS[backend]}",
            )
