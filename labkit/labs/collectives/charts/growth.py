"""How an all-reduce grows with the ranks, ours against nccl-tests; and the look that all charts of lab 09 share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from labkit.charts import canvas, parts
from labkit.labs.collectives.theory import AGAINST_GOAL, COLLECTIVES, bus_factor, hops
from labkit.provenance import fact, sources
from labkit.story import units

# The reader's prediction keeps its colour to itself.
COLORS = dict(zip(COLLECTIVES, (color for color in canvas.SERIES if color != canvas.PREDICTED), strict=False))
BACKENDS = {"nccl": "NCCL", "gloo": "gloo"}
MARKERS = {"nccl": "o", "gloo": "s"}
_MOST = 6  # names that fit under one of two panels
DASHES = (0, (4, 2))
COLLECTIVE, CLOCK = "all-reduce", "in flight"
_STYLES = {"latency": "-", "bandwidth": DASHES}  # of a ring's terms
_OCTAVES = [2.0**power for power in range(-6, 7)]


def factor_bars(values: pd.Series, share: pd.Series) -> list[pd.Series]:
    """Return how far bars reach down and up that are a factor 1 + share each way: alike on a logarithmic axis."""
    return [values - values / (1 + share), values * share]


def marks(ax: Axes, x: pd.Series, y: pd.Series, spread_share: pd.Series, **look: Any) -> None:
    """Draw measured values with the factor by which they scatter, on a logarithmic axis."""
    style = {"ms": 5, "lw": 1.3, "capsize": 2} | look
    ax.errorbar(x, y, yerr=factor_bars(y, spread_share), **style)


def named(size_bytes: float) -> str:
    """Return a message's size as short as it is exact: 4 KiB, not 4.00 KiB."""
    number, unit = units.size(size_bytes).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def mark_sizes(ax: Axes, sizes: Iterable[float], most: int = _MOST) -> None:
    """Mark the sizes on a logarithmic axis; where they are many, every second or third one, the largest among them."""
    places = sorted(set(sizes))
    shown = places[:: -math.ceil(len(places) / most)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    ax.set_xticks(shown, [named(size) for size in shown], fontsize=8.5)


def mark_regions(ax: Axes, knee_bytes: float) -> None:
    """Shade where latency takes longer than transfer, up to the knee; name both sides over the panel."""
    low, high = ax.get_xlim()
    if math.isfinite(knee_bytes) and knee_bytes > low:
        ax.axvspan(low, min(knee_bytes, high), color=canvas.IDLE, alpha=0.3, lw=0, zorder=0)
        if knee_bytes < high:
            ax.axvline(knee_bytes, color=canvas.QUIET, ls=":", lw=1.3)
    ax.set_xlim(low, high)
    for place, side, name in ((0.02, "left", "← latency"), (0.98, "right", "bandwidth →")):
        ax.text(place, 0.98, name, ha=side, va="top", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)


def against_chart(table: pd.DataFrame) -> Figure:
    """Our bus bandwidth as a share of nccl-tests' by message size, a colour per collective; the dashes are the goal.

    Where nccl-tests is not installed or gave nothing, our own bus bandwidths stand alone.
    """
    figure, ax = canvas.canvas(height=4.2)
    compared = table["ratio"].notna().any()
    column = "ratio" if compared else "ours_gb_per_s"
    for collective, own in table.groupby("collective", sort=False):
        look = {"color": COLORS[collective], "marker": "o", "ms": 5, "lw": 1.3, "capsize": 2, "label": collective}
        ax.errorbar(own["bytes"], own[column], yerr=own[column] * own["spread_share"], **look)
    mark_sizes(ax, table["bytes"], most=8)
    ranks = int(table["ranks"].max())
    if compared:
        ax.axhline(AGAINST_GOAL, color=canvas.THEORY, lw=1.2, ls=DASHES, label="goal")
        ax.axhline(1, color=canvas.THEORY, lw=0.8)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set_ylim(min(0.95, table[column].min() - 0.01), max(1.02, table[column].max() + 0.01))
        ax.set(ylabel="% of nccl-tests' bus bandwidth", title=f"Ours against nccl-tests, {ranks} ranks, in one run")
    else:
        why = "gave nothing" if fact(table, "installed") else "is not installed"
        ax.set_ylim(bottom=0)
        ax.set(ylabel="bus bandwidth, GB/s", title=f"Ours alone, {ranks} ranks: nccl-tests {why}")
    ax.set_xlabel("message")
    ax.grid(True)
    canvas.legend_above(ax, columns=7)
    return canvas.finish(figure, sources(table))


def growth_chart(here: pd.DataFrame, *recorded: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """An all-reduce's time over that of two ranks, by ranks: the smallest message left, the largest right.

    The lines are the ring's: 2(N − 1) hops of a small message, 2(N − 1)/N of a large message's bytes. A run in which
    no two numbers of ranks were timed stays out. `published`: `published_times`, in grey.
    """
    figure, axes = parts.panels(2, height=4.4, sharey=True)
    tables = (here, *recorded)
    most = max(8, *(int(table["ranks"].max()) for table in tables))
    for ax, largest in zip(axes, (False, True), strict=True):
        _ring_lines(ax, most)
        for table in tables:
            where, color = ("here", canvas.MEASURED) if table is here else ("recorded", canvas.RECORDED)
            _measured_growth(ax, table, largest, where, color)
        title = f"{'Largest' if largest else 'Smallest'}: {named(_end(here['bytes'], largest))}"
        if published is not None:
            _published_growth(ax, published, largest)
            title += f" (report: {_end(published['megabytes'], largest):g} MB)"
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set(xlabel="ranks", title=title)
        ax.grid(True)
    first = axes[0]
    first.set_yscale("log", base=2)
    low, high = first.get_ylim()
    low, high = min(0.8, low), max(1.3 * hops(COLLECTIVE, most) / hops(COLLECTIVE, 2), high)
    shown = [octave for octave in _OCTAVES if low <= octave <= high]
    first.yaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    first.set_yticks(shown, [f"{octave:g}" for octave in shown])
    first.set_ylim(low, high)
    first.set_ylabel("times as long as with 2 ranks (log)")
    canvas.shared_legend(figure, axes, columns=4)
    drawn = [table for table in tables if not _grown(table).empty] + ([] if published is None else [published])
    return canvas.finish(figure, sources(*(drawn or tables)))


def _end(values: pd.Series, largest: bool) -> Any:
    return values.max() if largest else values.min()


def _ring_lines(ax: Axes, most: int) -> None:
    counts = list(range(2, most + 1))
    for name, term in {"latency": hops, "bandwidth": bus_factor}.items():
        growth = [term(COLLECTIVE, ranks) / term(COLLECTIVE, 2) for ranks in counts]
        ax.plot(counts, growth, color=canvas.THEORY, lw=1.5, ls=_STYLES[name], label=f"a ring's {name}")


def _grown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the all-reduces in flight of the backends that were timed with two ranks and with more."""
    rows = table[(table["collective"] == COLLECTIVE) & (table["clock"] == CLOCK)].dropna(subset="median_us")
    counts = rows.groupby("backend")["ranks"]
    return rows[(counts.transform("min") == 2) & (counts.transform("max") > 2)]


def _measured_growth(ax: Axes, table: pd.DataFrame, largest: bool, where: str, color: str) -> None:
    for backend, own in _grown(table).groupby("backend", sort=False):
        line = own[own["bytes"] == _end(own["bytes"], largest)].sort_values("ranks")
        growth, share = line["median_us"] / line["median_us"].iloc[0], line["spread_us"] / line["median_us"]
        label = f"{where}, {BACKENDS[backend]}"
        marks(ax, line["ranks"], growth, share, color=color, marker=MARKERS[backend], lw=1.2, label=label)


def _published_growth(ax: Axes, published: pd.DataFrame, largest: bool) -> None:
    for backend, rows in published.groupby("backend", sort=False):
        line = rows[rows["megabytes"] == _end(published["megabytes"], largest)].sort_values("processes")
        if len(line):
            look = {"color": canvas.PUBLISHED, "marker": MARKERS[backend], "ms": 5, "lw": 1.2, "ls": DASHES}
            growth = line["seconds"] / line["seconds"].iloc[0]
            ax.plot(line["processes"], growth, label=f"report, {BACKENDS[backend]}", **look)
