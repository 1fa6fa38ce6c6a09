"""Bandwidth and time by message size with fitted lines; and the look that all charts of lab 09 share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import sources, where
from labkit.story import units
from lessons.collectives.theory import COLLECTIVES, bus_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The reader's prediction keeps its colour to itself.
COLORS = dict(zip(COLLECTIVES, (color for color in canvas.SERIES if color != canvas.PREDICTED), strict=False))
BACKENDS = {"nccl": "NCCL", "gloo": "gloo"}
MARKERS = {"nccl": "o", "gloo": "s"}
_MOST = 6  # names that fit under one of two panels
DASHES = (0, (4, 2))
COLLECTIVE, CLOCK = "all-reduce", "in flight"


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
    from matplotlib.ticker import FixedLocator, NullLocator

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
            ax.axvline(knee_bytes, ymax=_BELOW_NAMES, color=canvas.QUIET, ls=":", lw=1.3)
    ax.set_xlim(low, high)
    for place, side, name in ((0.02, "left", "← latency"), (0.98, "right", "bandwidth →")):
        ax.text(place, 0.98, name, ha=side, va="top", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)


_BELOW_NAMES = 0.9  # of a panel's height: there the knee's line ends, so that it crosses no name
_HEADROOM = 8.0  # times the highest line, so that the regions' names stand above all data
_CLOCK_MARKERS = {"in flight": "o", "one call": "^", "captured": "s"}
_CLOCK_NAMES = {
    "in flight": "calls in flight",
    "one call": "one call, waited for",
    "captured": "replayed from a CUDA graph",
}
_LARGEST = 2**30  # bytes that the reader predicts


def bandwidth_chart(*runs: tuple[pd.DataFrame, pd.DataFrame], guess: Any = None) -> Figure:
    """Bus bandwidth by message size at the most ranks, a colour per collective, a panel per run and backend.

    A run is its bandwidths and its fits; both axes are logarithmic. Grey is where an all-reduce's latency takes longer
    than its transfer; the dashes are its fitted line. The black line is what a GPU's links carry at most. `guess`: GB/s
    of an all-reduce at 1 GiB, a number or a Prediction, marked in NCCL's panels.
    """
    widest_runs = [(_widest(table[table["clock"] == CLOCK]), table, fits) for table, fits in runs]
    panels_of = [(backend, *run) for run in widest_runs for backend in BACKENDS if backend in set(run[0]["backend"])]
    figure, axes = parts.panels(len(panels_of), height=4.6, sharey=True)
    for ax, (backend, rows, table, fits) in zip(axes, panels_of, strict=True):
        backend_rows = rows[rows["backend"] == backend]
        for collective, line in backend_rows.groupby("collective", sort=False):
            look = {"color": COLORS[collective], "marker": "o", "ms": 4, "lw": 1.4, "label": collective}
            marks(ax, line["bytes"], line["bus_gb_per_s"], line["spread_us"] / line["median_us"], **look)
        mark_sizes(ax, rows["bytes"], most=12 // len(panels_of))
        _fitted(ax, fits, backend, backend_rows)
        _limits(ax, backend_rows)
        value = getattr(guess, "value", guess)
        if value and backend == "nccl" and _LARGEST in set(backend_rows["bytes"]):
            ax.plot(_LARGEST, value, "D", color=canvas.PREDICTED, zorder=4, ls="", label="your prediction")
        ax.set_title(_panel_title(table, backend, backend_rows))
        ax.set_xlabel("message")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylim(top=axes[0].get_ylim()[1] * _HEADROOM)
    axes[0].set_ylabel("bus bandwidth, GB/s (log)")
    axes[0].plot([], [], color=COLORS[COLLECTIVE], lw=1.2, ls=DASHES, label=f"{COLLECTIVE}, fitted")
    canvas.shared_legend(figure, axes, columns=5)
    return canvas.finish(figure, sources(*(table for table, _ in runs)))


def _panel_title(table: pd.DataFrame, backend: str, backend_rows: pd.DataFrame) -> str:
    return f"{where(table).partition(',')[0]}: {BACKENDS[backend]}, {backend_rows['ranks'].max()} ranks"


def _widest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the most ranks of their backend that have a time."""
    rows = table.dropna(subset="median_us")
    return rows[rows["ranks"] == rows.groupby("backend")["ranks"].transform("max")]


def _fitted(ax: Axes, fits: pd.DataFrame, backend: str, backend_rows: pd.DataFrame) -> None:
    ranks = backend_rows["ranks"].max()
    chosen = (fits["backend"] == backend) & (fits["collective"] == COLLECTIVE) & (fits["ranks"] == ranks)
    for line in fits[chosen].itertuples():
        sizes = np.geomspace(backend_rows["bytes"].min(), backend_rows["bytes"].max(), 80)
        moved = bus_factor(COLLECTIVE, ranks) * sizes / 1e3  # kB: over µs they are GB/s
        ax.plot(
            sizes, moved / (line.alpha_us + moved / line.beta_gb_per_s), color=COLORS[COLLECTIVE], lw=1.2, ls=DASHES
        )
        mark_regions(ax, line.knee_bytes)


def _limits(ax: Axes, backend_rows: pd.DataFrame) -> None:
    """Draw what the links carry, and above it what an all-reduce may seem to reach where the switch adds."""
    limits = backend_rows["limit"].dropna()
    names = {limits.min(): "a GPU's links"} if len(limits) else {}
    if len(limits) and limits.max() > 1.001 * limits.min():
        names[limits.max()] = "in the switch"
    for (limit, name), (side, away) in zip(names.items(), (("top", -3), ("bottom", 2)), strict=False):
        ax.axhline(limit, color=canvas.THEORY, lw=1)
        ax.annotate(
            f"{name}: {units.rate(limit)}",
            (0.02, limit),
            xycoords=ax.get_yaxis_transform(),
            va=side,
            xytext=(0, away),
            textcoords="offset points",
            fontsize=8.5,
            color=canvas.QUIET,
        )


def time_chart(*runs: tuple[pd.DataFrame, pd.DataFrame], collective: str = COLLECTIVE, guess: Any = None) -> Figure:
    """A call's time by message size at the most ranks with its fitted line, and below by how much that line is off.

    A run is its bandwidths and its residuals; a panel per run and backend. Triangles are the other clocks. Grey is
    where latency takes longer than transfer. `guess`: µs at 1 KiB, a number or a Prediction, marked in NCCL's panels.
    """
    from matplotlib.ticker import PercentFormatter

    drawn = []
    for table, residuals in runs:
        rows, misses = (_widest(every[every["collective"] == collective]) for every in (table, residuals))
        drawn += [(backend, rows, misses, table) for backend in BACKENDS if backend in set(misses["backend"])]
    shared = {"squeeze": False, "sharex": "col", "sharey": "row", "height_ratios": (3, 1.2)}
    figure, axes = canvas.canvas(len(drawn), 2, height=5.4, **shared)
    for place, (top, bottom, (backend, rows, misses, table)) in enumerate(zip(*axes, drawn, strict=True)):
        backend_rows, backend_misses = rows[rows["backend"] == backend], misses[misses["backend"] == backend]
        _times(top, backend_rows)
        _line_and_misses(top, bottom, backend_misses, collective)
        mark_sizes(bottom, backend_rows["bytes"], most=12 // len(drawn))
        mark_regions(top, backend_misses["knee_bytes"].iloc[0])
        top.set_title(_panel_title(table, backend, backend_rows))
        if place == 0 or table is not drawn[place - 1][-1]:  # the first panel of a run
            top.set_ylabel(f"{collective}, µs per call (log)")
        if backend == "nccl" and (value := getattr(guess, "value", guess)):
            top.plot(1024, value, "D", color=canvas.PREDICTED, zorder=4, ls="", label="your prediction")
    first = axes[0][0]
    canvas.logarithmic(first.yaxis)
    first.set_ylim(top=first.get_ylim()[1] * _HEADROOM)
    axes[1][0].yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[1][0].set_ylabel("%")
    for clock in dict.fromkeys(clock for _, rows, _, _ in drawn for clock in rows["clock"]):
        first.plot([], [], ls="", label=_CLOCK_NAMES[clock], **_look(clock))
    first.plot([], [], color=canvas.THEORY, lw=1.3, label="α + bytes/β, fitted")
    canvas.shared_legend(figure, axes[0])
    return canvas.finish(figure, sources(*(table for table, _ in runs)))


def _look(clock: str) -> dict[str, Any]:
    """Return a clock's mark: calls in flight are filled, the others hollow."""
    color, fill = (canvas.MEASURED, canvas.MEASURED) if clock == CLOCK else (canvas.QUIET, "none")
    return {"marker": _CLOCK_MARKERS[clock], "ms": 5, "mfc": fill, "color": color}


def _times(ax: Axes, rows: pd.DataFrame) -> None:
    for clock, line in rows.groupby("clock", sort=False):
        share = line["spread_us"] / line["median_us"]
        marks(ax, line["bytes"], line["median_us"], share, ls="", **_look(clock))


def _line_and_misses(top: Axes, bottom: Axes, misses: pd.DataFrame, collective: str) -> None:
    """Draw the fitted line over the times, and below by how much it is off at each size."""
    sizes, line = np.geomspace(misses["bytes"].min(), misses["bytes"].max(), 80), misses.iloc[0]
    moved = bus_factor(collective, line["ranks"]) * sizes / 1e3  # kB: over GB/s they are µs
    top.plot(sizes, line["alpha_us"] + moved / line["beta_gb_per_s"], color=canvas.THEORY, lw=1.3)
    bottom.plot(misses["bytes"], misses["residual"], color=canvas.MEASURED, marker="o", ms=4, lw=1.2)
    bottom.axhline(0, color=canvas.THEORY, lw=1)
    bottom.set_title("fitted over measured, % off", fontsize=9, fontweight="normal")
    bottom.set_xlabel("message")
    for ax in (top, bottom):
        ax.grid(True)
