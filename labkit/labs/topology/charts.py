"""Tables of lab 01 → figures: the node as a map, and its copies beside their links."""

from __future__ import annotations

import itertools

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from labkit.ui import canvas, units

# Path classes, nearest first, with nvidia-smi's own names; distant ones are not drawn but listed.
CLASSES = {"NV": "#009E73", "PIX": "#0072B2", "PXB": "#56B4E9", "PHB": "#E69F00", "NODE": "#CC79A7", "SYS": "#B5B5B5"}
WAYS = {"host_to_gpu": "host → GPU", "gpu_to_host": "GPU → host"}
SHADES = {False: canvas.MEASURED, True: canvas.COMMUNICATE}


def node_map(topology, source: str = "", gpu_name: str | None = None) -> Figure:
    """Draw the node: NUMA nodes as boxes, GPUs and NICs inside, NVLinks above, PCIe paths by class.

    A fabric that joins every pair alike is one bar; other NVLinks are arcs with their count.
    """
    kinds = {device.name: device.kind for device in topology.devices}
    groups = [
        (numa, *([name for name in names if kinds[name] == kind] for kind in ("gpu", "nic")))
        for numa, names in topology.numa_nodes().items()
    ]
    columns = sum(max(len(gpus), len(nics)) for _, gpus, nics in groups)
    figure, ax = canvas.canvas(width=max(7.5, 1.35 * columns + 2), height=4.4)
    ax.axis("off")
    x, left = {}, 0.0
    for numa, gpus, nics in groups:
        width = 1.35 * max(len(gpus), len(nics), 1)
        _box(ax, left, -1.15, width, 2.6, canvas.HAIRLINE, f"NUMA node {numa}" if numa is not None else "NUMA node not told")
        for row, members in ((0.45, gpus), (-0.75, nics)):
            for place, name in enumerate(members):
                x[name] = (left + width * (place + 0.5) / len(members), row)
                _device(ax, *x[name], name, kinds[name])
        left += width + 0.5
    _nvlinks(ax, topology, x, kinds, gpu_name)
    used = _pcie(ax, topology, x, kinds)
    middle, half = (left - 0.5) / 2, max(left / 2, 2.7)
    ax.set(xlim=(middle - half, middle + half), ylim=(-1.75, 3.0), title="How the devices are wired")
    if not x:
        ax.text(middle, 0.6, "no GPU, so nothing to wire", ha="center", fontsize=10, color=canvas.QUIET)
    for kind in used:
        ax.plot([], [], color=CLASSES[kind], lw=2.5, label=kind)
    if used:
        canvas.legend_above(ax, columns=6)
    return canvas.finish(figure, source)


def _box(ax, x: float, y: float, width: float, height: float, color: str, text: str) -> None:
    ax.add_patch(FancyBboxPatch((x + 0.06, y), width - 0.12, height, boxstyle="round,pad=0.04", fc="#F7F7F7", ec=color, lw=1.5))
    ax.text(x + width / 2, y - 0.3, text, ha="center", fontsize=9, color=canvas.QUIET)


def _device(ax, x: float, y: float, name: str, kind: str) -> None:
    color = "#DCEBF5" if kind == "gpu" else "#FBEBD0"
    ax.add_patch(FancyBboxPatch((x - 0.46, y - 0.24), 0.92, 0.48, boxstyle="round,pad=0.03", fc=color, ec="none", zorder=3))
    ax.text(x, y, name, ha="center", va="center", fontsize=9, zorder=4)


def _nvlinks(ax, topology, x, kinds, gpu_name) -> None:
    gpus = [name for name in x if kinds[name] == "gpu"]
    pairs = {pair: topology.path(*pair).nvlinks for pair in itertools.combinations(gpus, 2)}
    counts = set(pairs.values())
    if len(gpus) > 2 and len(counts) == 1 and counts != {0}:
        count = counts.pop()
        low, high = x[gpus[0]][0] - 0.4, x[gpus[-1]][0] + 0.4
        ax.plot([low, high], [2.1, 2.1], color=CLASSES["NV"], lw=9, solid_capstyle="round")
        for gpu in gpus:
            ax.plot([x[gpu][0]] * 2, [0.7, 2.1], color=CLASSES["NV"], lw=2.5)
        ax.text((low + high) / 2, 2.42, f"NVLink: every pair by {_links(topology, gpus, gpu_name, count)}", ha="center", fontsize=10)
        return
    apart = {(a, b): abs(gpus.index(a) - gpus.index(b)) for a, b in pairs}
    most = max([apart[pair] for pair, count in pairs.items() if count], default=1)
    for (a, b), count in pairs.items():
        if count:
            height = 0.45 + 1.5 * (apart[a, b] - 1) / max(most - 1, 1)
            _arc(ax, (x[a][0], 0.72), (x[b][0], 0.72), height, CLASSES["NV"], 1 + count / 3)
            ax.text(
                (x[a][0] + x[b][0]) / 2, 0.72 + height, f"NV{count}", ha="center", va="center", fontsize=8,
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )  # fmt: skip


def _arc(ax, start, end, height: float, color: str, width: float) -> None:
    """Draw a curve that rises by `height` at its middle; straight for 0."""
    control = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 2 * height)
    ax.add_patch(PathPatch(Path([start, control, end], [1, 3, 3]), fc="none", ec=color, lw=width, capstyle="round"))


def _links(topology, gpus, gpu_name, count: int) -> str:
    from labkit.node.limits import spec

    known = spec(gpu_name)
    if known is None or not known.nvlink_gb_per_s_per_link:
        return f"{count} links"
    rate = known.nvlink_gb_per_s_per_link
    return f"{count} links × {rate:g} = {units.rate(count * rate)} one way"


def _pcie(ax, topology, x, kinds) -> list[str]:
    """Draw the PCIe paths between GPUs and from each NIC to its nearest GPUs; give the classes drawn, nearest first."""
    used = {"NV"} if any(kind.startswith("NV") for kind in topology.links.values()) else set()
    order = list(CLASSES)
    nearest = {}
    for (_, b), kind in topology.links.items():
        if kinds[b] == "nic" and kind in CLASSES:
            nearest[b] = min(nearest.get(b, len(order)), order.index(kind))
    for (a, b), kind in topology.links.items():
        between_gpus = kinds[b] == "gpu"
        near = kinds[a] == "gpu" and kinds[b] == "nic" and kind in CLASSES and order.index(kind) == nearest[b]
        if kind not in CLASSES or kind == "SYS" or not (between_gpus or near):
            continue
        start, end = (x[a][0], x[a][1] - 0.27), (x[b][0], x[b][1] + (-0.27 if between_gpus else 0.27))
        deepest = 0.5 if nearest else 1.1  # above the NICs, or within the box
        _arc(ax, start, end, -min(0.28 * abs(start[0] - end[0]), deepest) if between_gpus else 0, CLASSES[kind], 2)
        used.add(kind)
    return [kind for kind in order if kind in used]


def copy_heatmap(table: pd.DataFrame) -> Figure:
    """GPU × GPU copies in GB/s: rows send, columns receive; the diagonal stays within one GPU."""
    matrix = table.pivot_table(index="source", columns="target", values="gb_per_s")
    count = len(matrix)
    figure, ax = canvas.canvas(width=max(5.6, 2.6 + count), height=1.6 + 0.72 * count)
    off = matrix.where(matrix.index.values[:, None] != matrix.columns.values[None, :])
    top = (off if count > 1 else matrix).max().max()
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=top * 1.15, aspect="auto")
    for (source, target), value in matrix.stack().items():
        row, column = matrix.index.get_loc(source), matrix.columns.get_loc(target)
        ax.text(column, row, units.number(value), ha="center", va="center", color="white" if value > 0.6 * top else canvas.INK)
    who = "GPU" if table.attrs["device"] == "cuda" else "process"
    names = [f"{who} {index}" for index in matrix.columns]
    ax.set(xticks=range(count), xticklabels=names, yticks=range(count), yticklabels=names, xlabel="receives", ylabel="sends")
    ax.set_title("Copies in GB/s (diagonal: within one memory)")
    ax.spines[:].set_visible(False)
    return canvas.finish(figure, table.attrs["source"])


def nominal_chart(table: pd.DataFrame) -> Figure:
    """The node's links by datasheet, on one logarithmic axis, with the least time to move the table's size over each."""
    figure, ax = canvas.canvas(height=1.2 + 0.5 * len(table))
    ax.barh(table["link"], table["gb_per_s"], color=canvas.THEORY, height=0.6)
    for y, row in enumerate(table.itertuples()):
        text = f"{units.rate(row.gb_per_s)}: {units.size(table.attrs['bytes'])} in ≥ {units.seconds(row.ms / 1e3)}"
        ax.text(row.gb_per_s * 1.08, y, text, va="center", fontsize=9)
    ax.set_xlim(10, table["gb_per_s"].max() * 20)
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="GB/s, one direction (log)", title="What the datasheet allows")
    ax.invert_yaxis()
    return canvas.finish(figure, table.attrs["source"])


def host_chart(summary: pd.DataFrame, nominal_gb_per_s: float | None = None) -> Figure:
    """Host copies: one GPU alone, each when all go at once, and their sum; a tick marks one link's datasheet rate."""
    labels = [f"{WAYS[row.copy]}\n{row.memory}" for row in summary.itertuples()]
    figure, ax = canvas.canvas(height=3.7)
    places = range(len(summary))
    bars = (
        ("alone_gb_per_s", "one GPU alone", canvas.SERIES[0]),
        ("each_then_gb_per_s", "each, all at once", canvas.SERIES[4]),
        ("all_at_once_gb_per_s", "all at once, summed", canvas.SERIES[2]),
    )
    for step, (column, label, color) in enumerate(bars):
        at = [place + 0.27 * (step - 1) for place in places]
        ax.bar(at, summary[column], width=0.25, color=color, label=label)
        for x, value in zip(at, summary[column], strict=True):
            ax.annotate(
                units.number(value), (x, value), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8.5,
                bbox={"fc": "white", "ec": "none", "pad": 0.6},
            )  # fmt: skip
    if nominal_gb_per_s and nominal_gb_per_s > 0:
        ax.axhline(nominal_gb_per_s, color=canvas.PREDICTED, lw=1.5, zorder=0.9, label="one link by datasheet")
    ax.set(xticks=places, xticklabels=labels, ylabel="GB/s", title="Copies between host and GPU")
    ax.grid(axis="y")
    canvas.legend_above(ax)
    return canvas.finish(figure, summary.attrs["source"])


def share_chart(*tables: pd.DataFrame) -> Figure:
    """Each measured copy as a share of its nominal rate: a dot a copy, flagged where it contradicts the datasheet."""
    rows = pd.concat([_named(table) for table in tables], ignore_index=True)
    order = list(dict.fromkeys(rows["name"]))
    figure, ax = canvas.canvas(height=1.5 + 0.27 * len(order))
    for verdict, color in (("ok", canvas.MEASURED), ("suspiciously low", canvas.COMMUNICATE), ("impossible", canvas.PREDICTED)):
        hits = rows[rows["verdict"] == verdict]
        if len(hits):
            jitter = [order.index(name) + 0.06 * (place % 5 - 2) for place, name in enumerate(hits["name"])]
            ax.scatter(100 * hits["share_of_limit"], jitter, color=color, s=36, alpha=0.75, label=verdict)
    shares = 100 * rows["share_of_limit"].dropna()
    right = max(118, 1.08 * shares.max()) if len(shares) else 118
    ax.axvline(100, color=canvas.THEORY, lw=1.2)
    ax.set(yticks=range(len(order)), yticklabels=order, xlabel="% of the link's nominal rate", xlim=(0, right))
    ax.set_ylim(len(order) - 0.4, -1.3)
    ax.text(100 + right / 200, -1.2, "datasheet", fontsize=9, va="top")
    ax.set_title("Measured beside nominal")
    ax.grid(axis="x")
    if shares.empty:
        ax.text(50, len(order) / 2 - 0.5, "no limit is known for these copies", ha="center", va="center", color=canvas.QUIET)
    canvas.legend_above(ax)
    return canvas.finish(figure, tables[0].attrs["source"])


ORIGINS = {
    "predicted": (canvas.PREDICTED, "D"),
    "nominal": (canvas.THEORY, "|"),
    "measured": (canvas.MEASURED, "o"),
    "recorded": (canvas.RECORDED, "s"),
}
ASIDE = {"predicted": -0.25, "nominal": 0.0, "measured": 0.0, "recorded": 0.25}  # rows, so that all show


def compare_chart(table: pd.DataFrame) -> Figure:
    """Predicted, nominal, measured and recorded GB/s of both ways on one axis."""
    order = list(dict.fromkeys(table["way"]))
    figure, ax = canvas.canvas(height=2.6)
    for origin, (color, marker) in ORIGINS.items():
        rows = table[table["origin"] == origin]
        if len(rows):
            at = rows["way"].map(order.index) + ASIDE[origin]
            size = 420 if marker == "|" else 50
            ax.scatter(rows["gb_per_s"], at, c=color, marker=marker, s=size, label=origin, zorder=3)
    canvas.logarithmic(ax.xaxis)
    ax.set(yticks=range(len(order)), yticklabels=order, xlabel="GB/s (log)", title="One link, several answers")
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.grid(axis="x")
    canvas.legend_above(ax, markerscale=0.75)
    return canvas.finish(figure, table.attrs["source"])


def _named(table: pd.DataFrame) -> pd.DataFrame:
    if "target" in table:
        names = ["GPU → itself" if a == b else "GPU → GPU" for a, b in zip(table["source"], table["target"], strict=True)]
    else:
        together = table["together"].map({True: "all at once", False: "alone"})
        names = [f"{WAYS[c]}, {m}, {t}" for c, m, t in zip(table["copy"], table["memory"], together, strict=True)]
    return table.assign(name=names)[["name", "share_of_limit", "verdict"]]
