"""Tables of lab 02 → figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas
from labkit.charts.parts import beside, by_origin, panels, rows, swatches
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.broadcast.theory import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HOST, _PEER = canvas.SERIES[0], canvas.COMMUNICATE  # into a GPU over PCIe; between GPUs over NVLink
_MEMORY = {"pageable": canvas.QUIET, "pinned": canvas.MEASURED}
_BEFORE = {"pageable": -0.17, "pinned": 0.17}  # rows aside, so that both dots of a method show
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
            for other in (g for g in range(gpus) if g != sender):
                width = 0.8 if len(senders) > 1 else 1.8
                _arrow(ax, (sender, 0.05), (other, 0.05), _PEER, width=width, bend=0.35, dashed=dashed)
    colours = "blue: host → GPU over PCIe · orange: GPU → GPU over NVLink"
    return canvas.finish(figure, f"{colours} · thin: a share of the tensor · dashed: chunk by chunk")


def _box(ax: Axes, x: float, y: float, text: str, *, width: float, color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.26), width, 0.52, boxstyle="round,pad=0.02", fc=color, ec="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=8, color="#222222")


def _arrow(
    ax: Axes, start: tuple, end: tuple, color: str, *, width: float, dashed: bool = False, bend: float = 0.0
) -> None:
    from matplotlib.patches import FancyArrowPatch

    curve = f"arc3,rad={-bend if end[0] < start[0] else bend}" if bend else "arc3"
    style = (0, (2, 1.2)) if dashed else "-"
    look = {"arrowstyle": "-|>", "mutation_scale": 9, "color": color, "lw": width, "ls": style}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=curve, **look))


def methods_chart(*tables: pd.DataFrame) -> Figure:
    """Milliseconds per method as dots, one per memory, with the datasheet's least time as a tick; a panel per run."""
    order = _in_order(*tables)
    figure, axes = panels(len(tables), rows=len(order), row_height=0.5, width=11.5 if len(tables) > 1 else 9.6)
    for ax, table in zip(axes, tables, strict=True):
        _methods_panel(ax, table, order, named=ax is axes[0])
    first = axes[0]
    swatches(first, {f"{memory} source": _MEMORY[memory] for memory in _memories(*tables)})
    if any((table["least_seconds"] > 0).any() for table in tables):
        first.plot([], [], color=canvas.THEORY, lw=0, marker="|", ms=13, mew=2, label="least time by datasheet")
    canvas.legend_above(first)
    return canvas.finish(figure, f"whisker: spread of the repeats · {sources(*tables)}")


def _methods_panel(ax: Axes, table: pd.DataFrame, order: list[str], named: bool) -> None:
    """Draw a run's methods, each with its fastest chunk count; an empty row says why it is empty."""
    labels = [NAMES[method] for method in order]
    places = rows(ax, labels if named else [""] * len(order))
    right = table[table["seconds"].notna()]
    fastest = right.loc[right.groupby(["method", "memory"], sort=False)["seconds"].idxmin()]
    for row in fastest.itertuples():
        place, ms = order.index(row.method), 1e3 * row.seconds
        at = place + (_BEFORE[row.memory] if len(_memories(table)) > 1 else 0)
        look = {"fmt": "o", "ms": 6, "color": _MEMORY[row.memory], "capsize": 3}
        ax.errorbar([ms], [at], xerr=[1e3 * row.spread_seconds], **look)
        pieces = f" ({row.chunks} chunks)" if row.chunks > 1 else ""
        beside(ax, ms + 1e3 * row.spread_seconds, at, f"{units.number(ms)} ms{pieces}", fontsize=8)
    for method, least in right.groupby("method")["least_seconds"].min().dropna().items():
        place = order.index(str(method))
        ax.plot([1e3 * least] * 2, [place - 0.36, place + 0.36], color=canvas.THEORY, lw=2, zorder=1)
    for place, method in zip(places, order, strict=True):
        if method not in set(fastest["method"]):
            why = "wrong copies" if method in set(table["method"]) else "not measured in this run"
            text = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": canvas.QUIET}
            ax.text(0.02, place, why, **text)
    low = 1e3 * right[["seconds", "least_seconds"]].min(axis=None)
    ax.set_xlim(low / 1.6, 1e3 * fastest["seconds"].max() * 5)
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="ms until every GPU has the tensor (log)", title=_tensor(table))


def _in_order(*tables: pd.DataFrame) -> list[str]:
    """Return the tables' methods, in the order in which the lab shows them."""
    return [method for method in NAMES if any(method in set(table["method"]) for table in tables)]


def _memories(*tables: pd.DataFrame) -> list[str]:
    return [memory for memory in _MEMORY if any(memory in set(table["memory"]) for table in tables)]


def _tensor(table: pd.DataFrame) -> str:
    on_cpu = "CPU core" in sources(table)
    target = "host buffers\n(in place of GPUs)" if on_cpu else "GPUs"
    return f"{where(table).partition(',')[0]}: {units.size(fact(table, 'bytes'))} to {fact(table, 'ranks')} {target}"


def chunk_curve(table: pd.DataFrame) -> Figure:
    """Time above the best chunk count's, in %, against the number of chunks; a panel per memory, a line per method."""
    memories, methods = _memories(table), [m for m in _in_order(table) if m != "links"]
    figure, axes = panels(len(memories), height=3.6, sharey=True)
    counts = sorted(table["chunks"].unique())
    for ax, memory in zip(axes, memories, strict=True):
        ax.axhspan(0, 1, color=canvas.HAIRLINE, label="within 1 % of the best")
        for method, color in zip(methods, (canvas.SERIES[2], canvas.SERIES[5]), strict=False):
            line = table[(table["method"] == method) & (table["memory"] == memory)].sort_values("chunks")
            spread = 100 * line["spread_seconds"] / line["seconds"].min()
            look = {"marker": "o", "ms": 5, "color": color, "capsize": 3, "label": NAMES[method]}
            ax.errorbar(line["chunks"], 100 * line["above_best"], yerr=spread, **look)
        ax.set_xscale("log", base=2)
        ax.set_xticks(counts, [str(count) for count in counts])
        ax.set(title=f"{memory} source", xlabel="chunks (log)")
        ax.minorticks_off()
        ax.grid(axis="y")
    axes[0].set_ylabel("% longer than with the best count")
    axes[0].set_ylim(bottom=min(0, axes[0].get_ylim()[0]))
    canvas.legend_above(axes[0])
    return canvas.finish(figure, f"whisker: spread of the repeats · {sources(table)}")


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """Lanes over time, one panel per method, one bar per copy: bars above one another run simultaneously."""
    lanes = [list(dict.fromkeys(_ordered(table))) for table in tables]
    height = 0.9 + 0.55 * len(tables) + 0.21 * sum(map(len, lanes))
    share = {"sharex": len(tables) > 1, "gridspec_kw": {"height_ratios": [len(names) for names in lanes]}}
    figure, axes = canvas.canvas(1, len(tables), height=height, squeeze=False, **share)
    for ax, table, names in zip(axes[:, 0], tables, lanes, strict=True):
        rows(ax, names)
        places = table["lane"].map(names.index)
        look = {"color": table["kind"].map({"host": _HOST, "peer": _PEER}), "edgecolor": "white", "linewidth": 0.5}
        ax.barh(places, table["end_ms"] - table["start_ms"], left=table["start_ms"], height=0.78, **look)
        share = fact(table, "hidden")  # NaN where nothing is forwarded
        hidden = f": {units.percent(share)} of the GPU → GPU time is hidden" if share >= 0 else ""
        ax.set_title(f"{NAMES[fact(table, 'method')]}, {fact(table, 'setting')}{hidden}")
        ax.tick_params(axis="y", labelsize=8, length=0)
        ax.set_ylim(len(names) - 0.3, -0.7)
    axes[-1, 0].set(xlabel="ms since the first copy began", xlim=(0, None))
    swatches(axes[0, 0], {"host → GPU": _HOST, "GPU → GPU": _PEER})
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(tables[0]))


def _ordered(table: pd.DataFrame) -> list[str]:
    return sorted(table["lane"], key=lambda lane: (not lane.startswith("host"), lane))


_OWN = {"measured": ("o", -0.12), "recorded": ("s", 0.08)}  # marker, rows aside


def compare_chart(table: pd.DataFrame) -> Figure:
    """Predicted, theory, measured, recorded and published seconds of each method; hollow marks: a pageable source."""
    order = _in_order(table)
    figure, (ax,) = panels(1, rows=len(order), row_height=0.56)
    rows(ax, [NAMES[method] for method in order])
    places = {method: place for place, method in enumerate(order)}
    others = table[table["origin"].isin(["predicted", "theory"])]
    by_origin(ax, others, "seconds", [places[method] for method in others["method"]])
    for (origin, memory), marks in table[table["origin"].isin(list(_OWN))].groupby(["origin", "memory"], sort=False):
        marker, aside = _OWN[str(origin)]
        color = canvas.MEASURED if origin == "measured" else canvas.RECORDED
        fill = color if memory == "pinned" else "none"
        at = marks["method"].map(places) + aside
        look = {"facecolors": fill, "edgecolors": color, "marker": marker, "s": 46, "lw": 1.5, "zorder": 3}
        ax.scatter(marks["seconds"], at, label=f"{origin}, {memory} source", **look)
    printed = table[table["origin"] == "published"]
    for (report, marks), (marker, aside) in zip(
        printed.groupby("report", sort=False), (("^", 0.26), ("v", 0.38)), strict=False
    ):
        at = marks["method"].map(places) + aside
        ax.scatter(marks["seconds"], at, c=canvas.PUBLISHED, marker=marker, s=42, label=report, zorder=3)
    canvas.logarithmic(ax.xaxis)
    ax.set(
        xlabel="seconds until every GPU has the tensor (log)",
        title="Predicted, datasheet, measured, recorded and published",
    )
    for line in range(1, len(order)):
        ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
    canvas.legend_above(ax, columns=3, markerscale=0.75)
    return canvas.finish(figure, sources(table).replace(" · published", "\npublished"))


def ablation_chart(table: pd.DataFrame) -> Figure:
    """Each method as two dots, from pageable and from pinned memory: how many times as fast as direct pageable."""
    order = _in_order(table)
    by_method = table.set_index("method").loc[order]
    figure, (ax,) = panels(1, rows=len(order))
    places = rows(ax, [NAMES[method] for method in order])
    start = by_method["pageable_seconds"].get("direct", float("nan"))
    factors = start / by_method[["pageable_seconds", "pinned_seconds"]]
    both = by_method["pinning_gain"].notna().any()
    ax.hlines(places, factors["pageable_seconds"], factors["pinned_seconds"], color=canvas.QUIET, lw=2)
    for memory in _MEMORY if both else ("pageable",):
        look = {"color": _MEMORY[memory], "s": 70, "label": f"{memory} source", "zorder": 3}
        ax.scatter(factors[f"{memory}_seconds"], places, **look)
    for place, gain, factor in zip(places, by_method["pinning_gain"], factors["pinned_seconds"], strict=True):
        if gain > 0:
            clear = {"boxstyle": "square,pad=0.1", "fc": ax.get_facecolor(), "ec": "none"}
            beside(ax, factor, place, f"pinning {units.times(gain)}", xytext=(10, 0), bbox=clear)
    ax.set_xlim(factors.min(axis=None) / 1.3, factors.max(axis=None) * (3 if both else 1.3))
    canvas.logarithmic(ax.xaxis)
    ax.set_title(
        "Along a row: the gain by pinning. From row to row: the gain by the path" if both else "The gain by the path"
    )
    ax.set_xlabel("times as fast as direct from pageable memory (log)")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))
