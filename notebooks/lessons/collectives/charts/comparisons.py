"""All-reduces here, recorded, published and predicted; growth with ranks; the ring step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import ink_on, shade
from labkit.provenance import sources
from lessons.collectives.charts.sizes import (
    BACKENDS,
    CLOCK,
    COLLECTIVE,
    DASHES,
    MARKERS,
    mark_sizes,
    marks,
    named,
)
from lessons.collectives.theory import ALL_GATHER, START, Step, bus_factor, hops

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMALL, _LARGE = 2**10, 2**30  # bytes that the reader predicts
_MB = 1e6
_STYLES = {"latency": "-", "bandwidth": DASHES}  # of a ring's terms
_OCTAVES = [2.0**power for power in range(-6, 7)]
_PROCESSES = dict(zip((2, 4, 6), (canvas.SERIES[0], canvas.SERIES[1], canvas.SERIES[2]), strict=True))


def overview_chart(
    here: pd.DataFrame,
    recorded: pd.DataFrame,
    published: pd.DataFrame,
    small_guess: Any = None,
    large_guess: Any = None,
) -> Figure:
    """An all-reduce's time between two ranks by message size, from every source there is; both axes are logarithmic.

    The black line is the least time of the recorded run's links. `small_guess`: µs at 1 KiB; `large_guess`: bus GB/s
    at 1 GiB; numbers or Predictions.
    """
    figure, ax = canvas.canvas(height=4.8)
    for table, color, where in ((recorded, canvas.RECORDED, "recorded"), (here, canvas.MEASURED, "here")):
        rows = table[(table["collective"] == COLLECTIVE) & (table["clock"] == CLOCK) & (table["ranks"] == 2)]
        for backend, line in rows.dropna(subset="median_us").groupby("backend", sort=False):
            look = {"color": color, "marker": MARKERS[backend], "label": f"{where}, {BACKENDS[backend]}"}
            marks(ax, line["bytes"], line["median_us"], line["spread_us"] / line["median_us"], **look)
    for backend, line in published[published["processes"] == 2].groupby("backend", sort=False):
        look = {"color": canvas.PUBLISHED, "marker": MARKERS[backend], "ms": 5, "ls": DASHES, "lw": 1.2}
        ax.plot(_MB * line["megabytes"], 1e6 * line["seconds"], label=f"report, {BACKENDS[backend]}", **look)
    sizes, factor = np.geomspace(_SMALL, _LARGE, 80), bus_factor(COLLECTIVE, 2)
    link = recorded.loc[recorded["collective"] != COLLECTIVE, "limit"].min()
    if np.isfinite(link):
        ax.plot(sizes, factor * sizes / link / 1e3, color=canvas.THEORY, lw=1.3, label="theory: the links' least")
    small, large = (getattr(guess, "value", guess) for guess in (small_guess, large_guess))
    guesses = ([(_SMALL, small)] if small else []) + ([(_LARGE, factor * _LARGE / large / 1e3)] if large else [])
    for size, us in guesses:
        ax.plot(size, us, "D", color=canvas.PREDICTED, ms=7, zorder=4)
    if guesses:
        ax.plot([], [], "D", color=canvas.PREDICTED, label="your prediction")
    mark_sizes(ax, [_SMALL * 4**power for power in range(11)], most=11)
    canvas.logarithmic(ax.yaxis)
    ax.set(xlabel="message", ylabel="µs per call (log)", title="An all-reduce between two ranks")
    ax.grid(True)
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, sources(here, recorded, published))


def published_chart(times: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """The printed times by size, a colour per number of processes, fitted lines, and the least that links allow.

    Dots are NCCL's, squares gloo's; both axes are logarithmic.
    """
    figure, ax = canvas.canvas(height=4.4)
    for (backend, processes), marked in times.groupby(["backend", "processes"], sort=False):
        look = {"ms": 6, "color": _PROCESSES[processes], "label": f"{BACKENDS[backend]}, {processes} processes"}
        ax.plot(marked["megabytes"], marked["seconds"], MARKERS[backend], **look)
    for line in fits.itertuples():
        sizes = np.geomspace(times["megabytes"].min(), times["megabytes"].max(), 80)
        sent = bus_factor(COLLECTIVE, line.ranks) * sizes * _MB
        ax.plot(sizes, line.alpha_us / 1e6 + sent / line.beta_gb_per_s / 1e9, color=_PROCESSES[line.ranks], lw=1.2)
    least = times[(times["backend"] == "nccl") & (times["processes"] == times["processes"].min())]
    ax.plot(least["megabytes"], least["least_ms"] / 1e3, color=canvas.THEORY, lw=1.4, label="at best, a V100's NVLinks")
    canvas.logarithmic(ax.xaxis)
    canvas.logarithmic(ax.yaxis)
    ax.plot([], [], color=canvas.QUIET, lw=1.2, label="α + bytes/β, fitted")
    ax.set(xlabel="message, MB (log)", ylabel="seconds (log)", title="An all-reduce as a report prints it")
    ax.grid(True)
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, sources(times))


MOVED = canvas.COMMUNICATE
_NAMED = 6  # ranks up to which a cell has room for its number
_SOURCE = "computed, not measured"


def chunk_color(values: int, ranks: int) -> str:
    """Return the colour of a chunk that holds the values of so many of the ranks: the full blue is a whole one."""
    return shade((values - 1) / (ranks - 1))


def ring_chart(steps: Sequence[Step]) -> Figure:
    """Ranks × chunks after every step, the number of ranks whose values a chunk holds in it; N panels a row.

    A frame stands around what has just arrived: first it was added, then it replaced what was there.
    """
    ranks = len(steps[0].held)
    figure, axes = canvas.canvas(ranks, 2, height=4.4, squeeze=False, sharex=True, sharey=True)
    places = [*axes[0], *axes[1][1:]]  # the gathering stands under the reducing, its first panel under the first sum
    for ax, step in zip(places, steps, strict=True):
        _draw(ax, step, ranks)
    axes[1][0].remove()
    for name, part in {"its own values only": 0.0, "a partial sum": 0.5, "whole: all ranks' values": 1.0}.items():
        axes[0][0].plot([], [], "s", ms=10, color=shade(part), label=name)
    axes[0][0].plot([], [], "s", ms=9, mfc="none", mec=MOVED, mew=2.5, label="has just arrived")
    canvas.legend_above(axes[0][0])
    return canvas.finish(figure, _SOURCE)


def _draw(ax: Axes, step: Step, ranks: int) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    for rank, row in enumerate(step.held):
        for chunk, ranks_in_it in enumerate(row):
            values, corner = len(ranks_in_it), (chunk - 0.5, rank - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, facecolor=chunk_color(values, ranks), edgecolor="white", lw=2))
            if ranks <= _NAMED:
                ink = ink_on(chunk_color(values, ranks))
                ax.text(chunk, rank, str(values), ha="center", va="center", fontsize=9, color=ink)
    for rank, move in enumerate(step.moves):
        ax.add_patch(Rectangle((move.receive - 0.42, rank - 0.42), 0.84, 0.84, fill=False, edgecolor=MOVED, lw=2.2))
    ax.set(xlim=(-0.5, ranks - 0.5), ylim=(ranks - 0.5, -0.5), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))
    ax.spines[:].set_visible(False)
    verb = {START: "start", ALL_GATHER: "replaced"}.get(step.phase, "added")
    ax.set_title(verb if step.phase == START else f"step {step.number}: {verb}", fontsize=10)
    if step.number in (0, ranks):
        ax.set_ylabel("rank")
    if step.number >= ranks:
        ax.set_xlabel("chunk")


def growth_chart(here: pd.DataFrame, *recorded: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """An all-reduce's time over that of two ranks, by ranks: the smallest message left, the largest right.

    The lines are the ring's: 2(N − 1) hops of a small message, 2(N − 1)/N of a large message's bytes. A run in which
    no two numbers of ranks were timed stays out. `published`: `published_times`, in grey.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    figure, axes = parts.panels(2, height=4.4, sharey=True)
    tables = (here, *recorded)
    most = max(8, *(int(table["ranks"].max()) for table in tables))
    for ax, largest in zip(axes, (False, True), strict=True):
        _ring_lines(ax, most)
        for table in tables:
            where, color = ("here", canvas.MEASURED) if table is here else ("recorded", canvas.RECORDED)
            _measured_growth(ax, table, largest, where, color)
        own = named(_end(here["bytes"], largest))
        sizes = _sizes(here, largest)
        others = [
            f"{backend}: {size}"
            for table in recorded
            for backend, size in _sizes(table, largest).items()
            if size != sizes.get(backend, own)
        ]
        if published is not None:
            _published_growth(ax, published, largest)
            others.append(f"report: {_end(published['megabytes'], largest):g} MB")
        place = "\n" if len(others) > (published is not None) else " "  # with recorded sizes it is a line of its own
        beside = f"{place}({', '.join(others)})" if others else ""
        title = f"{'Largest' if largest else 'Smallest'}: {own}{beside}"
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


def _sizes(table: pd.DataFrame, largest: bool) -> dict[str, str]:
    """Return the size of the message that is drawn for each backend: {"NCCL": "1 GiB"}."""
    return {BACKENDS[name]: named(_end(rows["bytes"], largest)) for name, rows in _grown(table).groupby("backend")}


def _measured_growth(ax: Axes, table: pd.DataFrame, largest: bool, where: str, color: str) -> None:
    for backend, backend_rows in _grown(table).groupby("backend", sort=False):
        line = backend_rows[backend_rows["bytes"] == _end(backend_rows["bytes"], largest)].sort_values("ranks")
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
