"""Tables of lab 02 → figures."""

from __future__ import annotations

import itertools

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.charts import canvas
from labkit.story import units

NAMES = {
    "links": "all host links (yardstick)",
    "direct": "direct",
    "staged": "staged",
    "nccl": "one copy, then NCCL",
    "pipelined": "pipelined",
    "scatter_all_gather": "scatter + all-gather",
}
HOST, PEER = canvas.SERIES[0], canvas.COMMUNICATE  # into a GPU over PCIe; between GPUs over NVLink
MEMORY = {"pageable": canvas.QUIET, "pinned": canvas.MEASURED}
ORIGINS = {
    "predicted": (canvas.PREDICTED, "D"),
    "theory": (canvas.THEORY, "|"),
    "measured": (canvas.MEASURED, "o"),
    "recorded": (canvas.RECORDED, "s"),
    "published": (canvas.PUBLISHED, "^"),
}
ASIDE = {
    "predicted": -0.3,
    "theory": 0.0,
    "measured": -0.1,
    "recorded": 0.1,
    "published": 0.3,
}  # rows, so that all show


def paths_drawing(gpus: int = 4) -> Figure:
    """Draw the four ways from one host tensor to every GPU; the number of arrows is the number of link uses."""
    figure, axes = canvas.canvas(4, width=11, height=3.0)
    for ax, method in zip(axes, ("direct", "staged", "pipelined", "scatter_all_gather"), strict=True):
        ax.set(title=NAMES[method], xlim=(-0.6, gpus - 0.4), ylim=(-0.75, 2.5))
        ax.axis("off")
        _box(ax, (gpus - 1) / 2, 2.0, "host tensor", width=gpus - 0.14, color=canvas.HAIRLINE)
        for gpu in range(gpus):
            _box(ax, gpu, 0.35, f"GPU {gpu}" if gpus <= 4 else str(gpu), width=0.86, color="#DCEBF5")
        pulls = range(gpus) if method in ("direct", "scatter_all_gather") else [0]
        for gpu in pulls:
            thin = method == "scatter_all_gather"
            _arrow(ax, (gpu, 1.7), (gpu, 0.65), HOST, width=1.1 if thin else 2.4, dashed=method == "pipelined")
        senders = {"direct": [], "scatter_all_gather": range(gpus)}.get(method, [0])
        for sender in senders:
            for other in (g for g in range(gpus) if g != sender):
                _arrow(ax, (sender, 0.05), (other, 0.05), PEER, width=0.8 if len(senders) > 1 else 1.8, bend=0.35)
    return canvas.finish(
        figure, "blue: host → GPU over PCIe · orange: GPU → GPU · thin: a share · dashed: chunk by chunk"
    )


def _box(ax, x: float, y: float, text: str, *, width: float, color: str) -> None:
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.26), width, 0.52, boxstyle="round,pad=0.02", fc=color, ec="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=8)


def _arrow(ax, start, end, color: str, *, width: float, dashed: bool = False, bend: float = 0.0) -> None:
    curve = f"arc3,rad={-bend if end[0] < start[0] else bend}" if bend else "arc3"
    style = (0, (2, 1.2)) if dashed else "-"
    ax.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle=curve, arrowstyle="-|>", mutation_scale=9, color=color, lw=width, ls=style
        )
    )


def methods_chart(table: pd.DataFrame) -> Figure:
    """Bars of seconds a method, pageable above pinned, with the datasheet's limit as a tick where it is known."""
    order = [m for m in NAMES if m in set(table["method"])]
    memories = [m for m in MEMORY if m in set(table["memory"])]
    figure, ax = canvas.canvas(height=1.4 + 0.16 * len(order) + 0.26 * len(order) * len(memories))
    table = table[table["seconds"].notna()]
    bars, ticks = [], []
    for row, method in enumerate(order):
        for step, memory in enumerate(memories):
            found = table[(table["method"] == method) & (table["memory"] == memory)]
            if len(found):
                bars.append((row * (len(memories) + 0.6) + step, found.loc[found["seconds"].idxmin()]))
        ticks.append(row * (len(memories) + 0.6) + (len(memories) - 1) / 2)
    for y, bar in bars:
        ax.barh(
            y, bar["seconds"], color=MEMORY[bar["memory"]], height=0.82, xerr=bar["spread_seconds"], ecolor=canvas.INK
        )
        if bar["limit_seconds"] > 0:
            ax.plot([bar["limit_seconds"]] * 2, [y - 0.41, y + 0.41], color=canvas.PREDICTED, lw=2)
    longest = max(bar["seconds"] for _, bar in bars)
    for y, bar in bars:
        end = max(bar["seconds"] + bar["spread_seconds"], bar["limit_seconds"] if bar["limit_seconds"] > 0 else 0)
        ax.text(end * 1.06, y, units.seconds(bar["seconds"]), va="center", fontsize=9)
    ax.set_xlim(min(bar[["seconds", "limit_seconds"]].min() for _, bar in bars) / 2, longest * 2.2)
    canvas.logarithmic(ax.xaxis)
    ax.set(yticks=ticks, yticklabels=[NAMES[m] for m in order], xlabel="seconds to have the tensor on every GPU (log)")
    ax.set_title(f"{units.size(table.attrs['bytes'])} from the host to {table.attrs['gpus']} GPUs" + _stand_in(table))
    ax.invert_yaxis()
    handles = [(f"{m} source", MEMORY[m]) for m in memories]
    handles += [("least time by datasheet", canvas.PREDICTED)] if table["limit_seconds"].notna().any() else []
    for text, color in handles:
        ax.plot([], [], color=color, lw=6 if "source" in text else 2, label=text)
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])


def chunk_curve(table: pd.DataFrame) -> Figure:
    """Milliseconds against the number of chunks, a row a memory, a panel a method, whiskers for the spread."""
    panels, memories = list(dict.fromkeys(table["method"])), [m for m in MEMORY if m in set(table["memory"])]
    counts = sorted(table["chunks"].unique())
    figure, axes = canvas.canvas(len(panels), len(memories), height=0.6 + 2.5 * len(memories), squeeze=False)
    for ax, (memory, method) in zip(axes.flat, itertools.product(memories, panels), strict=True):
        line = table[(table["method"] == method) & (table["memory"] == memory)].sort_values("chunks")
        ax.errorbar(
            line["chunks"],
            1e3 * line["seconds"],
            yerr=1e3 * line["spread_seconds"],
            marker="o",
            ms=5,
            color=MEMORY[memory],
            capsize=3,
        )
        ax.set_xscale("log", base=2)
        ax.set(
            title=f"{NAMES[method]}, {memory} source", xticks=counts, xticklabels=counts, xlabel="chunks", ylabel="ms"
        )
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        ax.minorticks_off()
        ax.grid(axis="y")
    return canvas.finish(figure, table.attrs["source"])


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """Lanes over time, one panel a method, one bar a copy: overlap is what stands above one another."""
    lanes = [list(dict.fromkeys(_ordered(table))) for table in tables]
    height = 0.9 + 0.55 * len(tables) + 0.21 * sum(map(len, lanes))
    figure, axes = canvas.canvas(
        1,
        len(tables),
        height=height,
        squeeze=False,
        sharex=len(tables) > 1,
        gridspec_kw={"height_ratios": [len(n) for n in lanes]},
    )
    for ax, table, names in zip(axes[:, 0], tables, lanes, strict=True):
        for kind, color in (("host", HOST), ("peer", PEER)):
            rows = table[table["kind"] == kind]
            ax.barh(
                [names.index(lane) for lane in rows["lane"]],
                rows["end_ms"] - rows["start_ms"],
                left=rows["start_ms"],
                height=0.78,
                color=color,
                edgecolor="white",
                linewidth=0.5,
            )
        ax.set(
            title=f"{NAMES[table.attrs['method']]}, {table.attrs['setting']}",
            yticks=range(len(names)),
            yticklabels=names,
        )
        ax.tick_params(axis="y", labelsize=8, length=0)
        ax.set_ylim(len(names) - 0.3, -0.7)
        ax.grid(axis="x")
    axes[-1, 0].set(xlabel="ms since the first copy began", xlim=(0, None))
    for color, text in ((HOST, "host → GPU"), (PEER, "GPU → GPU")):
        axes[0, 0].plot([], [], color=color, lw=6, label=text)
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, tables[0].attrs["source"])


def _ordered(table: pd.DataFrame) -> list[str]:
    return sorted(table["lane"], key=lambda lane: (not lane.startswith("host"), lane))


def compare_chart(table: pd.DataFrame) -> Figure:
    """Predicted, theory, measured, recorded and published seconds of each method on one axis."""
    order = [m for m in NAMES if m in set(table["method"])]
    figure, ax = canvas.canvas(height=1.4 + 0.5 * len(order))
    for origin, (color, marker) in ORIGINS.items():
        rows = table[(table["origin"] == origin) & table["seconds"].notna()]
        if len(rows):
            at = rows["method"].map(order.index) + ASIDE[origin]
            ax.scatter(
                rows["seconds"], at, c=color, marker=marker, s=420 if marker == "|" else 42, label=origin, zorder=3
            )
    canvas.logarithmic(ax.xaxis)
    ax.set(yticks=range(len(order)), yticklabels=[NAMES[m] for m in order], xlabel="seconds (log)")
    ax.set_title("The same tensor on every GPU: who says how long it takes")
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.grid(axis="x")
    for line in range(1, len(order)):
        ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
    canvas.legend_above(ax, markerscale=0.75)
    return canvas.finish(figure, table.attrs["source"])


def ablation_chart(table: pd.DataFrame) -> Figure:
    """What pinning did and what the path did, as factors over the worst corner (direct from pageable memory)."""
    order = [m for m in NAMES if m in set(table["method"])]
    rows = table.set_index("method").loc[order]
    figure, ax = canvas.canvas(height=1.3 + 0.42 * len(order))
    start = rows["pageable_seconds"].get("direct", float("nan"))
    y = range(len(order))
    both = rows["pinning_gain"].notna().any()
    for memory in ("pageable", "pinned") if both else ("pageable",):
        ax.scatter(start / rows[f"{memory}_seconds"], y, color=MEMORY[memory], s=70, label=f"{memory} source", zorder=3)
    ax.hlines(y, start / rows["pageable_seconds"], start / rows["pinned_seconds"], color=canvas.QUIET, lw=2)
    for at, (_, row) in zip(y, rows.iterrows(), strict=True):
        if row["pinning_gain"] > 0:
            ax.text(
                start / row["pinned_seconds"] * 1.12,
                at,
                f"pinning {units.times(row['pinning_gain'])}",
                va="center",
                fontsize=9,
            )
    factors = start / rows[["pageable_seconds", "pinned_seconds"]]
    low, high = factors.min(axis=None), factors.max(axis=None)
    ax.set_xlim(low / 1.3, high * (3 if both else 1.3))
    canvas.logarithmic(ax.xaxis)
    ax.set(yticks=y, yticklabels=[NAMES[m] for m in order], xlabel="times as fast as direct from pageable memory (log)")
    ax.set_title(
        "Along a line: what pinning did. From line to line: what the path did" if both else "What the path did"
    )
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.grid(axis="x")
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])


def _stand_in(table: pd.DataFrame) -> str:
    return " (host buffers stand in for GPUs)" if table.attrs["source"].find("CPU core") >= 0 else ""
