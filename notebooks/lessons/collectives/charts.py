"""Tables of lab 09 → figures: this run and the recorded one by message size, and a report's times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import ink_on, shade
from labkit.provenance import sources
from labkit.story import units
from labkit.theory.sizes import GIB, KIB, MB
from lessons.collectives.theory import (
    ALL_GATHER,
    COLLECTIVES,
    FLAT,
    NAMES,
    START,
    Step,
    backends,
    bus_factor,
    is_noise,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The reader's prediction keeps its colour to itself.
LOOKS = canvas.looks(COLLECTIVES, [color for color in canvas.SERIES if color != canvas.PREDICTED])
MOVED = canvas.COMMUNICATE
_MARKERS = {"nccl": "o", "gloo": "s"}
_ALL_REDUCE, _CLOCK = "all-reduce", "in flight"
_SMALLEST, _LARGEST = KIB, GIB  # bytes that the reader predicts


def _mark_sizes(ax: Axes, sizes: Iterable[float], most: int = 12) -> None:
    parts.knob_axis(ax, sizes, "message, bytes", units.exact_size, most=most, fontsize=8.5)
    ax.grid(True)


def _marks(ax: Axes, x: pd.Series, y: pd.Series, spread: pd.Series, **look: Any) -> None:
    """Draw measured values with their spread; down it is as far as up by the factor, so that it never reaches 0."""
    ax.errorbar(x, y, yerr=[y - y / (1 + spread / y), spread], **({"ms": 5, "lw": 1.3, "capsize": 2} | look))


def _widest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the most ranks of their backend that have a time."""
    rows = table.dropna(subset="median_us")
    return rows[rows["ranks"] == rows.groupby("backend")["ranks"].transform("max")]


def _title(layers: Sequence[parts.Layer], libraries: Sequence[str]) -> str:
    """Return whose run a panel shows, by which libraries, and among how many."""
    table = layers[-1].table
    names = " and ".join(NAMES[backend] for backend in libraries)
    return f"{parts.whose(layers)}: {names}, {_widest(table)['ranks'].max()} {parts.workers(table)}"


def times_chart(here: pd.DataFrame | None, recorded: pd.DataFrame | None, guess: Any = None) -> Figure:
    """µs of an all-reduce by message size, with the fitted lines of calls in flight; this run, then the recorded one.

    Takes two `bandwidths`. Grey is where latency takes longer than transfer. Where noise hides what the size adds,
    there is no line. `guess`: µs at 1 KiB of the recorded run.
    """
    figure, shown = parts.panel_each(parts.run_panels(here, recorded), height=4.6, sharey=True)
    for ax, layers in shown:
        top = layers[-1]
        rows = _widest(top.table[top.table["collective"] == _ALL_REDUCE])
        libraries = backends(rows["backend"])
        for layer in layers:
            _times_layer(ax, layer, libraries)
        _mark_sizes(ax, rows["bytes"], most=12 // len(shown))
        line = rows[(rows["backend"] == libraries[0]) & (rows["clock"] == _CLOCK)].sort_values("bytes")
        if not is_noise([*line["median_us"]]):
            _mark_regions(ax, line["knee_bytes"].iloc[0])
        if any(layer.recorded for layer in layers):
            parts.guess_mark(ax, _SMALLEST, guess)
        ax.set_title(_title(layers, libraries))
    first = shown[0][0]
    canvas.logarithmic(first.yaxis)
    first.set_ylim(top=first.get_ylim()[1] * 6)  # the regions' names stand above all data
    first.set_ylabel("all-reduce, µs per call (log)")
    return parts.close(figure, here, recorded, columns=4)


def _times_layer(ax: Axes, layer: parts.Layer, libraries: Sequence[str]) -> None:
    rows = _widest(layer.table[layer.table["collective"] == _ALL_REDUCE])
    for backend in libraries:
        of_backend = rows[rows["backend"] == backend]
        line = of_backend[of_backend["clock"] == _CLOCK].sort_values("bytes")
        look = {"color": layer.color, "marker": _MARKERS[backend], "ls": "", "zorder": 1 if layer.behind else 3}
        label = f"{layer.label}, {NAMES[backend]}, calls in flight"
        _marks(ax, line["bytes"], line["median_us"], line["spread_us"], label=label, **look)
        if layer.behind:
            continue
        if line["alpha_us"].notna().any() and not is_noise([*line["median_us"]]):
            sizes, fitted = np.geomspace(line["bytes"].min(), line["bytes"].max(), 80), line.iloc[0]
            moved = bus_factor(_ALL_REDUCE, int(fitted["ranks"])) * sizes / 1e3  # kB: over GB/s they are µs
            look = {"color": canvas.THEORY, "lw": 1.3, "zorder": 2, "label": "α_call + bytes/β, fitted"}
            ax.plot(sizes, fitted["alpha_us"] + moved / fitted["beta_gb_per_s"], **look)
        waited_for = of_backend[of_backend["clock"] == "one call"]
        if backend == "nccl" and len(waited_for):
            look = {"mfc": "none", "color": canvas.QUIET, "ms": 5, "label": "one call, waited for"}
            ax.plot(waited_for["bytes"], waited_for["median_us"], "^", **look)


def _mark_regions(ax: Axes, knee_bytes: float) -> None:
    """Shade where latency takes longer than transfer, up to the knee; name both sides in the panel."""
    low, high = ax.get_xlim()
    if math.isfinite(knee_bytes) and knee_bytes > low:
        ax.axvspan(low, min(knee_bytes, high), color=canvas.IDLE, alpha=0.3, lw=0, zorder=0)
    ax.set_xlim(low, high)
    for place, side, name in ((0.02, "left", "← latency"), (0.98, "right", "bandwidth →")):
        ax.text(place, 0.98, name, ha=side, va="top", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)


def rings_chart(here: pd.DataFrame | None, recorded: pd.DataFrame | None) -> Figure:
    """µs of an all-reduce by message size: the library's, the ring by hand, and yours; this run, then the recorded one.

    Takes two `ring_lines`. Each has its line, with α and β, unless noise hides what the size adds or
    the line misses a time by more than a quarter.
    """
    figure, shown = parts.panel_each(parts.run_panels(here, recorded), height=4.4)
    for ax, layers in shown:
        for layer in layers:
            looks = {
                "library": {"color": canvas.QUIET, "marker": "s"},
                "ours": {"color": layer.color, "marker": "o"},
                "yours": {"color": canvas.YOURS, "marker": "D"},
            }
            for method, look in looks.items():
                line = layer.table[layer.table["method"] == method].sort_values("bytes")
                if len(line):
                    _ring_line(ax, line, look | {"zorder": 1 if layer.behind else 3})
        _mark_sizes(ax, line_sizes := layers[-1].table["bytes"], most=12 // len(shown))
        canvas.logarithmic(ax.yaxis)
        ax.set_xlim(min(line_sizes) / 2, 2 * max(line_sizes))
        group = f"{layers[-1].table['ranks'].max()} {parts.workers(layers[-1].table)}"
        ax.set(ylabel="µs per all-reduce (log)", title=f"{parts.whose(layers)}: {group}")
        ax.set_ylim(top=8 * ax.get_ylim()[1])  # the legend stands above all data
        ax.legend(loc="upper left", fontsize=8.5)
    return canvas.finish(figure, parts.own_scales(shown) + sources(here, recorded))


def _ring_line(ax: Axes, line: pd.DataFrame, look: dict[str, Any]) -> None:
    first = line.iloc[0]
    name = {"library": NAMES[first["backend"]], "ours": "ring by hand", "yours": "ring with your step"}[first["method"]]
    factor = bus_factor(_ALL_REDUCE, int(first["ranks"])) / 1e3  # bytes to kB: over GB/s they are µs
    fitted_us = first["alpha_us"] + factor * line["bytes"] / first["beta_gb_per_s"]
    if not is_noise([*line["median_us"]]) and (fitted_us / line["median_us"] - 1).abs().max() <= FLAT - 1:
        name += f": α {units.seconds(first['alpha_us'] / 1e6)}, β {units.rate(first['beta_gb_per_s'])}"
        sizes = np.geomspace(line["bytes"].min(), line["bytes"].max(), 80)
        line_us = first["alpha_us"] + factor * sizes / first["beta_gb_per_s"]
        ax.plot(sizes, line_us, color=look["color"], lw=1.1, zorder=2)
    _marks(ax, line["bytes"], line["median_us"], line["spread_us"], label=name, ls="", **look)


def bandwidth_chart(here: pd.DataFrame | None, recorded: pd.DataFrame | None, guess: Any = None) -> Figure:
    """Bus bandwidth by message size, a line per collective: this run, then the recorded one, each with its scale.

    Takes two `bandwidths`; of each, the faster library. The black lines are what a GPU's links carry at most. `guess`:
    GB/s of an all-reduce at 1 GiB in the recorded run.
    """
    figure, shown = parts.panel_each(parts.run_panels(here, recorded), height=4.4)
    ends: dict[Axes, dict[str, Any]] = {}
    for ax, layers in shown:
        backend = backends(layers[-1].table["backend"])[0]
        for layer in layers:
            rows = _widest(layer.table[(layer.table["clock"] == _CLOCK) & (layer.table["backend"] == backend)])
            ends[ax] = {}  # the run behind gets no names
            for collective, line in rows.groupby("collective", sort=False):
                look = LOOKS[collective] | {"lw": 1.4}
                look |= {"alpha": 0.35, "zorder": 1} if layer.behind else {"label": collective}
                rates = line["bus_gb_per_s"]
                _marks(ax, line["bytes"], rates, rates * line["spread_us"] / line["median_us"], **look)
                ends[ax][collective] = (line["bytes"].iloc[-1], rates.iloc[-1], look["color"])
        _mark_sizes(ax, rows["bytes"], most=12 // len(shown))
        _limits(ax, rows)
        if any(layer.recorded for layer in layers) and _LARGEST in set(rows["bytes"]):
            parts.guess_mark(ax, _LARGEST, guess)
        ax.set_ylim(bottom=0, top=1.12 * ax.get_ylim()[1])
        ax.set(ylabel="bus bandwidth, GB/s", title=_title(layers, [backend]))
    parts.close(figure, here, recorded, note=parts.own_scales(shown), columns=7)
    return parts.names_at_ends(figure, ends)


def _limits(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw what the links carry, and above it what an all-reduce may seem to reach where the switch adds."""
    limits = rows["limit"].dropna()
    names = {limits.max(): "sum made in the switch", limits.min(): "a GPU's links"} if len(limits) else {}
    for limit, name in names.items():
        ax.axhline(limit, color=canvas.THEORY, lw=1)
        look = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 8.5, "color": canvas.QUIET}
        look["bbox"] = {"boxstyle": "square,pad=0.1", "fc": ax.get_facecolor(), "ec": "none"}
        ax.annotate(f"{name}: {units.rate(limit)}", (0.02, limit), xycoords=ax.get_yaxis_transform(), **look)


def reports_chart(
    times: pd.DataFrame, here: pd.DataFrame | None = None, recorded: pd.DataFrame | None = None
) -> Figure:
    """ms of an all-reduce between two GPUs by message size, as a report prints it, beside the least of a V100's links.

    `here` and `recorded` add our all-reduces between two ranks, in flight, each of its faster library, and the very
    first call of the recorded run.
    """
    figure, ax = canvas.canvas(height=4.4)
    least = times[(times["backend"] == "nccl") & (times["processes"] == 2)]
    look = {"color": canvas.PUBLISHED, "ms": 6, "lw": 1.2, "label": "report, NCCL, 2 processes"}
    ax.plot(MB * least["megabytes"], 1e3 * least["seconds"], "o-", **look)
    for table, color, name in ((recorded, canvas.RECORDED, "recorded run"), (here, canvas.MEASURED, "this run")):
        if table is None:
            continue
        rows = table[(table["collective"] == _ALL_REDUCE) & (table["clock"] == _CLOCK)].dropna(subset="median_us")
        backend = backends(rows["backend"])[0]
        line = rows[(rows["backend"] == backend) & (rows["ranks"] == 2)]
        look = {"color": color, "marker": _MARKERS[backend], "label": f"{name}, {NAMES[backend]}, 2 ranks"}
        _marks(ax, line["bytes"], line["median_us"] / 1e3, line["spread_us"] / 1e3, **look)
        if table is recorded:
            first = line.loc[line["bytes"].idxmin()]
            look = {"color": color, "ms": 13, "ls": "", "label": "recorded run, its very first call"}
            ax.plot(first["bytes"], first["first_us"] / 1e3, "*", **look)
    ax.plot(MB * least["megabytes"], least["least_ms"], color=canvas.THEORY, lw=1.4, label="least, a V100's NVLinks")
    if recorded is None:
        parts.knob_axis(ax, MB * least["megabytes"], "message, bytes", lambda size: f"{size / MB:g} MB")
        ax.grid(True)
        ax.set_title("A report's all-reduce, 8 × V100")
    else:
        _mark_sizes(ax, [2.0**power for power in range(10, 31, 2)])
        ax.set_title("An all-reduce: a report's on 8 × V100, and ours")
    canvas.logarithmic(ax.yaxis)
    ax.set_ylabel("ms per all-reduce (log)")
    return parts.close(figure, times, recorded, here, columns=4)


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
    return canvas.finish(figure, "computed, not measured")


def _draw(ax: Axes, step: Step, ranks: int) -> None:
    from matplotlib.patches import Rectangle

    for rank, row in enumerate(step.held):
        for chunk, ranks_in_it in enumerate(row):
            color, corner = chunk_color(len(ranks_in_it), ranks), (chunk - 0.5, rank - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, facecolor=color, edgecolor="white", lw=2))
            ax.text(chunk, rank, str(len(ranks_in_it)), ha="center", va="center", fontsize=9, color=ink_on(color))
    for rank, move in enumerate(step.moves):
        ax.add_patch(Rectangle((move.receive - 0.42, rank - 0.42), 0.84, 0.84, fill=False, edgecolor=MOVED, lw=2.2))
    ax.set(xlim=(-0.5, ranks - 0.5), ylim=(ranks - 0.5, -0.5), aspect="equal", xticks=range(ranks), yticks=range(ranks))
    ax.spines[:].set_visible(False)
    verb = {START: "start", ALL_GATHER: "replaced"}.get(step.phase, "added")
    ax.set_title(verb if step.phase == START else f"step {step.number}: {verb}", fontsize=10)
    if step.number in (0, ranks):
        ax.set_ylabel("rank")
    if step.number >= ranks:
        ax.set_xlabel("chunk")
