"""Tables of lab 02 → figures."""

from __future__ import annotations

import itertools

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.charts import canvas
from labkit.charts.parts import beside, by_origin, panels, rows, swatches
from labkit.provenance import fact, sources
from labkit.story import units

_NAMES = {
    "links": "all host links (yardstick)",
    "direct": "direct",
    "staged": "staged",
    "nccl": "one copy, then NCCL",
    "pipelined": "pipelined",
    "scatter_all_gather": "scatter + all-gather",
}
_HOST, _PEER = canvas.SERIES[0], canvas.COMMUNICATE  # into a GPU over PCIe; between GPUs over NVLink
_MEMORY = {"pageable": canvas.QUIET, "pinned": canvas.MEASURED}


def paths_drawing(gpus: int = 4) -> Figure:
    """Draw the four ways from one host tensor to every GPU; the number of arrows is the number of link uses."""
    figure, axes = panels(4, width=11, height=3.0)
    for ax, method in zip(axes, ("direct", "staged", "pipelined", "scatter_all_gather"), strict=True):
        ax.set(title=_NAMES[method], xlim=(-0.6, gpus - 0.4), ylim=(-0.75, 2.5))
        ax.axis("off")
        _box(ax, (gpus - 1) / 2, 2.0, "host tensor", width=gpus - 0.14, color=canvas.HAIRLINE)
        for gpu in range(gpus):
            _box(ax, gpu, 0.35, f"GPU {gpu}" if gpus <= 4 else str(gpu), width=0.86, color="#DCEBF5")
        pulls = range(gpus) if method in ("direct", "scatter_all_gather") else [0]
        for gpu in pulls:
            thin = method == "scatter_all_gather"
            _arrow(ax, (gpu, 1.7), (gpu, 0.65), _HOST, width=1.1 if thin else 2.4, dashed=method == "pipelined")
        senders = {"direct": [], "scatter_all_gather": range(gpus)}.get(method, [0])
        for sender in senders:
            for other in (g for g in range(gpus) if g != sender):
                _arrow(ax, (sender, 0.05), (other, 0.05), _PEER, width=0.8 if len(senders) > 1 else 1.8, bend=0.35)
    colours = "blue: host → GPU over PCIe · orange: GPU → GPU"
    return canvas.finish(figure, f"{colours} · thin: a share · dashed: chunk by chunk")


def _box(ax, x: float, y: float, text: str, *, width: float, color: str) -> None:
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.26), width, 0.52, boxstyle="round,pad=0.02", fc=color, ec="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=8)


def _arrow(ax, start, end, color: str, *, width: float, dashed: bool = False, bend: float = 0.0) -> None:
    curve = f"arc3,rad={-bend if end[0] < start[0] else bend}" if bend else "arc3"
    style = (0, (2, 1.2)) if dashed else "-"
    look = {"arrowstyle": "-|>", "mutation_scale": 9, "color": color, "lw": width, "ls": style}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=curve, **look))


def methods_chart(table: pd.DataFrame) -> Figure:
    """Bars of seconds a method, pageable above pinned, with the datasheet's limit as a tick where it is known."""
    order = _in_order(table)
    memories = [memory for memory in _MEMORY if memory in set(table["memory"])]
    group = len(memories) + 0.6  # rows per method, with the gap below it
    figure, (ax,) = panels(1, height=1.4 + 0.16 * len(order) + 0.26 * len(order) * len(memories))
    right = table[table["seconds"].notna()]
    fastest = right.loc[right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()]
    for bar in fastest.itertuples():
        place = order.index(bar.method) * group + memories.index(bar.memory)
        look = {"color": _MEMORY[bar.memory], "xerr": bar.spread_seconds, "ecolor": canvas.INK}
        ax.barh(place, bar.seconds, height=0.82, **look)
        end = bar.seconds + bar.spread_seconds
        if bar.limit_seconds > 0:
            ax.plot([bar.limit_seconds] * 2, [place - 0.41, place + 0.41], color=canvas.PREDICTED, lw=2)
            end = max(end, bar.limit_seconds)
        beside(ax, end, place, units.seconds(bar.seconds))
    ax.set_xlim(fastest[["seconds", "limit_seconds"]].min(axis=None) / 2, fastest["seconds"].max() * 2.2)
    canvas.logarithmic(ax.xaxis)
    middles = [row * group + (len(memories) - 1) / 2 for row in range(len(order))]
    ax.set_yticks(middles, [_NAMES[method] for method in order])
    ax.set(xlabel="seconds to have the tensor on every GPU (log)", title=_tensor(table))
    ax.invert_yaxis()
    swatches(ax, {f"{memory} source": _MEMORY[memory] for memory in memories})
    if right["limit_seconds"].notna().any():
        ax.plot([], [], color=canvas.PREDICTED, lw=2, label="least time by datasheet")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))


def _in_order(table: pd.DataFrame) -> list[str]:
    """Return the table's methods, in the order in which the lab shows them."""
    return [method for method in _NAMES if method in set(table["method"])]


def _tensor(table: pd.DataFrame) -> str:
    stand_in = " (host buffers stand in for GPUs)" if "CPU core" in sources(table) else ""
    return f"{units.size(fact(table, 'bytes'))} from the host to {fact(table, 'ranks')} GPUs{stand_in}"


def chunk_curve(table: pd.DataFrame) -> Figure:
    """Milliseconds against the number of chunks, a row a memory, a panel a method, whiskers for the spread."""
    methods = list(dict.fromkeys(table["method"]))
    memories = [memory for memory in _MEMORY if memory in set(table["memory"])]
    counts = sorted(table["chunks"].unique())
    figure, axes = canvas.canvas(len(methods), len(memories), height=0.6 + 2.5 * len(memories), squeeze=False)
    for ax, (memory, method) in zip(axes.flat, itertools.product(memories, methods), strict=True):
        line = table[(table["method"] == method) & (table["memory"] == memory)].sort_values("chunks")
        look = {"marker": "o", "ms": 5, "color": _MEMORY[memory], "capsize": 3}
        ax.errorbar(line["chunks"], 1e3 * line["seconds"], yerr=1e3 * line["spread_seconds"], **look)
        ax.set_xscale("log", base=2)
        ax.set_xticks(counts, [str(count) for count in counts])
        ax.set(title=f"{_NAMES[method]}, {memory} source", xlabel="chunks", ylabel="ms")
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        ax.minorticks_off()
        ax.grid(axis="y")
    return canvas.finish(figure, sources(table))


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """Lanes over time, one panel a method, one bar a copy: overlap is what stands above one another."""
    lanes = [list(dict.fromkeys(_ordered(table))) for table in tables]
    height = 0.9 + 0.55 * len(tables) + 0.21 * sum(map(len, lanes))
    share = {"sharex": len(tables) > 1, "gridspec_kw": {"height_ratios": [len(names) for names in lanes]}}
    figure, axes = canvas.canvas(1, len(tables), height=height, squeeze=False, **share)
    for ax, table, names in zip(axes[:, 0], tables, lanes, strict=True):
        rows(ax, names)
        places = table["lane"].map(names.index)
        look = {"color": table["kind"].map({"host": _HOST, "peer": _PEER}), "edgecolor": "white", "linewidth": 0.5}
        ax.barh(places, table["end_ms"] - table["start_ms"], left=table["start_ms"], height=0.78, **look)
        ax.set_title(f"{_NAMES[fact(table, 'method')]}, {fact(table, 'setting')}")
        ax.tick_params(axis="y", labelsize=8, length=0)
        ax.set_ylim(len(names) - 0.3, -0.7)
    axes[-1, 0].set(xlabel="ms since the first copy began", xlim=(0, None))
    swatches(axes[0, 0], {"host → GPU": _HOST, "GPU → GPU": _PEER})
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(tables[0]))


def _ordered(table: pd.DataFrame) -> list[str]:
    return sorted(table["lane"], key=lambda lane: (not lane.startswith("host"), lane))


def compare_chart(table: pd.DataFrame) -> Figure:
    """Predicted, theory, measured, recorded and published seconds of each method on one axis."""
    order = _in_order(table)
    figure, (ax,) = panels(1, rows=len(order), row_height=0.5)
    rows(ax, [_NAMES[method] for method in order])
    by_origin(ax, table, "seconds", [order.index(method) for method in table["method"]])
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="seconds (log)", title="The same tensor on every GPU: who says how long it takes")
    for line in range(1, len(order)):
        ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
    canvas.legend_above(ax, markerscale=0.75)
    return canvas.finish(figure, sources(table))


def ablation_chart(table: pd.DataFrame) -> Figure:
    """What pinning did and what the path did, as factors over the worst corner (direct from pageable memory)."""
    order = _in_order(table)
    by_method = table.set_index("method").loc[order]
    figure, (ax,) = panels(1, rows=len(order))
    places = rows(ax, [_NAMES[method] for method in order])
    start = by_method["pageable_seconds"].get("direct", float("nan"))
    factors = start / by_method[["pageable_seconds", "pinned_seconds"]]
    both = by_method["pinning_gain"].notna().any()
    for memory in ("pageable", "pinned") if both else ("pageable",):
        look = {"color": _MEMORY[memory], "s": 70, "label": f"{memory} source", "zorder": 3}
        ax.scatter(factors[f"{memory}_seconds"], places, **look)
    ax.hlines(places, factors["pageable_seconds"], factors["pinned_seconds"], color=canvas.QUIET, lw=2)
    for place, gain, factor in zip(places, by_method["pinning_gain"], factors["pinned_seconds"], strict=True):
        if gain > 0:
            beside(ax, factor, place, f"pinning {units.times(gain)}", xytext=(8, 0))
    ax.set_xlim(factors.min(axis=None) / 1.3, factors.max(axis=None) * (3 if both else 1.3))
    canvas.logarithmic(ax.xaxis)
    path = "From line to line: what the path did"
    ax.set_title(f"Along a line: what pinning did. {path}" if both else "What the path did")
    ax.set_xlabel("times as fast as direct from pageable memory (log)")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))
