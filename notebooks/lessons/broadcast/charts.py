"""Tables of lab 02 → figures: this run first, the recorded one beside it or, where both have one size, behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas
from labkit.charts.parts import (
    Layer,
    beside,
    close,
    distinct,
    guess_line,
    knob_axis,
    own_scales,
    panel_each,
    panels,
    rows,
    run_panels,
    swatches,
    whose,
    workers,
)
from labkit.provenance import fact, run_name
from labkit.story import units
from labkit.theory.sizes import MIB
from lessons.broadcast.theory import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HOST, _PEER = canvas.SERIES[0], canvas.COMMUNICATE  # into a GPU over PCIe; between GPUs over NVLink
_ASIDE = {"pageable": -0.17, "pinned": 0.17}  # rows aside, so that both dots of a method show
_BOTH_WAYS = ("links", "direct", "scatter_all_gather")  # every GPU pulls from the host


def paths_drawing(gpus: int = 4) -> Figure:
    """Draw the four ways from one host tensor to every GPU; the number of arrows is the number of link uses."""
    figure, axes = panels(4, width=11, height=3.0)
    for ax, method in zip(axes, ("direct", "staged", "pipelined", "scatter_all_gather"), strict=True):
        ax.set(title=NAMES[method], xlim=(-0.6, gpus - 0.4), ylim=(-0.75, 2.5))
        ax.axis("off")
        _box(ax, (gpus - 1) / 2, 2.0, "host tensor", width=gpus - 0.14, color=canvas.HAIRLINE)
        for gpu in range(gpus):
            _box(ax, gpu, 0.35, f"GPU {gpu}" if gpus <= 4 else str(gpu), width=0.86, color="#DCEBF5")
        dashed = method in ("pipelined", "scatter_all_gather")
        for gpu in range(gpus) if method in _BOTH_WAYS else [0]:
            width = 1.1 if method == "scatter_all_gather" else 2.4
            _arrow(ax, (gpu, 1.7), (gpu, 0.65), _HOST, width=width, dashed=dashed)
        senders = {"direct": [], "scatter_all_gather": range(gpus)}.get(method, [0])
        for sender in senders:
            both_ways = len(senders) > 1  # one arrow with two heads: two dashed ones over each other would look solid
            for other in (g for g in range(gpus) if (g > sender if both_ways else g != sender)):
                look = {"width": 0.8 if both_ways else 1.8, "bend": 0.35, "dashed": dashed, "both_ways": both_ways}
                _arrow(ax, (sender, 0.05), (other, 0.05), _PEER, **look)
    colours = "blue: host → GPU over PCIe · orange: GPU → GPU over NVLink"
    return canvas.finish(figure, f"{colours} · thin: a share of the tensor · dashed: chunk by chunk")


def _box(ax: Axes, x: float, y: float, text: str, *, width: float, color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.26), width, 0.52, boxstyle="round,pad=0.02", fc=color, ec="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=8, color="#222222")


def _arrow(
    ax: Axes,
    start: tuple,
    end: tuple,
    color: str,
    *,
    width: float,
    dashed: bool = False,
    bend: float = 0.0,
    both_ways: bool = False,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    curve = f"arc3,rad={-bend if end[0] < start[0] else bend}" if bend else "arc3"
    heads, dashes = "<|-|>" if both_ways else "-|>", (0, (2, 1.2)) if dashed else "-"
    look = {"arrowstyle": heads, "mutation_scale": 9, "color": color, "lw": width, "ls": dashes}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=curve, **look))


def methods_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Milliseconds per method as dots, filled for pinned memory, hollow for pageable; this run, then the recorded one.

    A tick is the datasheet's least time. `guess` is a prediction in ms for the recorded node, or None.
    """
    order = _in_order(tables)
    figure, shown = _panels_of(tables, rows=len(order), row_height=0.5)
    for ax, layers in shown:
        places = rows(ax, [NAMES[method] for method in order] if ax is figure.axes[0] else [""] * len(order))
        for layer in layers:
            _methods_layer(ax, layer, dict(zip(order, places, strict=True)))
        if any(layer.recorded for layer in layers):
            guess_line(ax, guess)
        times = pd.concat([layer.table[name] for layer in layers for name in ("seconds", "least_seconds")])
        ax.set_xlim(1e3 * times.min() / 1.6, 1e3 * times.max() * 5)  # room for the last label
        canvas.logarithmic(ax.xaxis)
        ax.set(xlabel="ms until every GPU has the tensor (log)", title=_title(layers))
    _name_marks(shown)
    return close(figure, *tables, note="whisker: spread of the repeats · ")


def _methods_layer(ax: Axes, layer: Layer, places: dict[str, int]) -> None:
    """Draw a run's methods, each with its fastest chunk count; an empty row says why it is empty."""
    right = layer.table[layer.table["seconds"].notna()]
    fastest = right.loc[right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()]
    both = len({*fastest["memory"]}) > 1
    for row in fastest.itertuples():
        ms, spread = 1e3 * row.seconds, 1e3 * row.spread_seconds
        at = places[row.method] + (_ASIDE[row.memory] if both else 0)
        ax.errorbar([ms], [at], xerr=[spread], **_mark(ax, layer, row.memory))
        if not layer.behind:
            clear = {"boxstyle": "square,pad=0.1", "fc": ax.get_facecolor(), "ec": "none"}
            beside(ax, ms + spread, at, f"{units.number(ms)} ms", fontsize=8, bbox=clear)
    if layer.behind:
        return
    for method, least in right.groupby("method")["least_seconds"].min().dropna().items():
        place = places[str(method)]
        ax.plot([1e3 * least] * 2, [place - 0.36, place + 0.36], color=canvas.THEORY, lw=2, zorder=1)
    for method, place in places.items():
        if method not in set(fastest["method"]):
            why = "wrong copies" if method in set(layer.table["method"]) else "not measured"
            text = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": canvas.QUIET}
            ax.text(0.02, place, why, **text)


def _mark(ax: Axes, layer: Layer, memory: str) -> dict[str, Any]:
    """Return a mark's look: its colour tells the run, its filling the source's memory."""
    filling = layer.color if memory == "pinned" else ax.get_facecolor()
    order = 1 if layer.behind else 3
    look = {"fmt": "o", "ms": 10 if layer.behind else 7, "capsize": 3, "zorder": order}
    return look | {"color": layer.color, "mfc": filling, "mew": 1.6}


def _name_marks(shown: list[tuple[Axes, list[Layer]]]) -> None:
    """Add legend entries for the runs' colours, for the filling of marks and for the datasheet's tick."""
    ax, layers = shown[0][0], [layer for _, panel in shown for layer in panel]
    for label, color in {layer.label: layer.color for layer in layers}.items():
        ax.plot([], [], "s", color=color, label=label)
    for memory, filling in (("pageable", "none"), ("pinned", canvas.INK)):
        ax.plot([], [], "o", color=canvas.INK, mfc=filling, label=f"from {memory} memory")
    if any("least_seconds" in layer.table and layer.table["least_seconds"].gt(0).any() for layer in layers):
        ax.plot([], [], "|", color=canvas.THEORY, ms=12, mew=2, label="least time by datasheet")


def _with_links(tables: tuple[pd.DataFrame, ...]) -> tuple[pd.DataFrame, ...]:
    """Return the tables without that of CPU processes beside a recorded run: they have one memory and no links."""
    return tables[1:] if len(tables) > 1 and fact(tables[0], "small") else tables


def _panels_of(tables: Sequence[pd.DataFrame], **options: Any) -> tuple[Figure, list[tuple[Axes, list[Layer]]]]:
    """Return a figure with the panels of this run and the recorded one, or of the recorded one alone."""
    shown = run_panels(tables[0] if len(tables) > 1 else None, tables[-1], "bytes")
    return panel_each(shown, width=11.5 if len(shown) > 1 else 9.6, **options)


def _in_order(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Return the tables' methods, in the order in which the lab shows them."""
    return [method for method in NAMES if any(method in set(table["method"]) for table in tables)]


def _title(layers: list[Layer]) -> str:
    """Return whose run a panel shows: how large a tensor went to how many."""
    table = layers[-1].table
    mib = fact(table, "bytes") / MIB
    size = f"{mib / 1024:g} GiB" if mib >= 1024 else f"{mib:g} MiB"
    return f"{whose(layers)}: {size} to {fact(table, 'ranks')} {workers(table)}"


def ablation_chart(*tables: pd.DataFrame) -> Figure:
    """Each method as two dots, from pageable and from pinned memory: how many times as fast as direct pageable.

    Beside a recorded run, one of CPU processes is not drawn.
    """
    tables = _with_links(tables)
    order = _in_order(tables)
    figure, shown = _panels_of(tables, rows=len(order))
    for ax, layers in shown:
        places = rows(ax, [NAMES[method] for method in order] if ax is figure.axes[0] else [""] * len(order))
        ends = []
        for layer in layers:
            by_method = layer.table.set_index("method").reindex(order)
            seconds = by_method[["pageable_seconds", "pinned_seconds"]]
            factors = by_method["pageable_seconds"].get("direct", float("nan")) / seconds
            ends += [factors.min(axis=None), factors.max(axis=None)]
            ax.hlines(places, factors["pageable_seconds"], factors["pinned_seconds"], color=layer.color, lw=2)
            for memory in ("pageable", "pinned"):
                ax.errorbar(factors[f"{memory}_seconds"], places, ls="none", **_mark(ax, layer, memory))
            for place, gain, factor in zip(places, by_method["pinning_gain"], factors["pinned_seconds"], strict=True):
                if gain > 0 and not layer.behind:
                    beside(ax, factor, place, f"pinning {units.times(gain)}", xytext=(12, 0), fontsize=8)
        if not max(ends) > 0:
            text, at = "this run lacks direct from pageable memory", ax.get_yaxis_transform()
            ax.text(0.02, 0, text, transform=at, fontsize=8)
            ends = [1, 10]
        ax.set_xlim(min(ends) / 1.3, max(ends) * 3)  # room for the last label
        canvas.logarithmic(ax.xaxis)
        ax.set(title=_title(layers), xlabel="times as fast as direct from pageable memory (log)")
    _name_marks(shown)
    return close(figure, *tables)


def chunk_curve(*tables: pd.DataFrame) -> Figure:
    """Time above the best chunk count's, in %, against the number of chunks: a panel per run, a line per method.

    Takes `chunk_sweep` tables: of the methods in chunks from pinned memory, or from pageable where nothing is pinned.
    Beside a recorded run, one of CPU processes is not drawn.
    """
    tables = _with_links(tables)
    figure, shown = _panels_of(tables, height=3.6)
    for ax, layers in shown:
        ax.axhspan(0, 10, color=canvas.HAIRLINE, label="within 10 % of the best")
        for layer in layers:
            for method, color in zip(_in_order(tables), (canvas.SERIES[2], canvas.SERIES[5]), strict=False):
                line = layer.table[layer.table["method"] == method].sort_values("chunks")
                spread = 100 * line["spread_seconds"] / line["seconds"].min()
                look = {"marker": "o", "ms": 5, "color": color, "capsize": 3, "alpha": 0.4 if layer.behind else 1.0}
                name = f"{NAMES[method]}{', recorded run' if layer.behind else ''}"
                ax.errorbar(line["chunks"], 100 * line["above_best"], yerr=spread, label=name, **look)
        counts = [count for layer in layers for count in layer.table["chunks"]]
        knob_axis(ax, counts, "chunks of the tensor; scatter + all-gather: of a share")
        ax.set(title=_title(layers), ylim=(min(0, ax.get_ylim()[0]), None))
        ax.grid(axis="y")
    shown[0][0].set_ylabel("% longer than with the best count")
    return close(figure, *tables, note=f"{own_scales(shown)}whisker: spread of the repeats · ")


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """Lanes over time, one panel per table, one bar per copy: bars above one another run simultaneously."""
    tables = distinct(tables)
    lanes = [list(dict.fromkeys(_ordered(table))) for table in tables]
    height = 0.9 + 0.75 * len(tables) + 0.21 * sum(map(len, lanes))
    heights = {"height_ratios": [len(names) for names in lanes]}
    figure, axes = canvas.canvas(1, len(tables), height=height, squeeze=False, gridspec_kw=heights)
    for ax, table, names in zip(axes[:, 0], tables, lanes, strict=True):
        rows(ax, names)
        places = table["lane"].map(names.index)
        look = {"color": table["kind"].map({"host": _HOST, "peer": _PEER}), "edgecolor": "white", "linewidth": 0.5}
        ax.barh(places, table["end_ms"] - table["start_ms"], left=table["start_ms"], height=0.78, **look)
        ax.set_title(f"{run_name(table)}: {NAMES[fact(table, 'method')]}, {fact(table, 'setting')}")
        ax.set(xlim=(0, None), xlabel="ms since the first copy began")
        ax.tick_params(axis="y", labelsize=8, length=0)
        ax.set_ylim(len(names) - 0.3, -0.7)
    swatches(axes[0, 0], {"host → GPU": _HOST, "GPU → GPU": _PEER})
    return close(figure, *tables, note=own_scales(tables))


def _ordered(table: pd.DataFrame) -> list[str]:
    return sorted(table["lane"], key=lambda lane: (not lane.startswith("host"), lane))
