"""Tables of lab 01 → figures: the node as a map, and its copies beside their links."""

from __future__ import annotations

import itertools

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.ui import canvas, units

# Path classes, nearest first, with nvidia-smi's own names; distant ones are not drawn but listed.
CLASSES = {"NV": "#009E73", "PIX": "#0072B2", "PXB": "#56B4E9", "PHB": "#E69F00", "NODE": "#CC79A7", "SYS": "#B5B5B5"}
WAYS = {"host_to_gpu": "host → GPU", "gpu_to_host": "GPU → host"}
SHADES = {False: canvas.MEASURED, True: canvas.COMMUNICATE}


def node_map(topology, source: str = "", gpu_name: str | None = None) -> Figure:
    """Draw the node: NUMA nodes as boxes, GPUs and NICs inside, NVLinks above, PCIe paths by class.

    A fabric that joins every pair alike is one bar; other NVLinks are arcs with their count.
    """
    groups = {numa: topology.numa_nodes()[numa] for numa in topology.numa_nodes()}
    figure, ax = canvas.canvas(width=max(7.5, 1.35 * len(topology.devices) + 2), height=4.4)
    ax.axis("off")
    x, left = {}, 0.0
    kinds = {device.name: device.kind for device in topology.devices}
    for numa, names in groups.items():
        gpus = [name for name in names if kinds[name] == "gpu"]
        nics = [name for name in names if kinds[name] == "nic"]
        width = 1.35 * max(len(gpus), len(nics), 1)
        _box(ax, left, -1.15, width, 2.6, canvas.HAIRLINE, f"NUMA node {numa}" if numa is not None else "NUMA node not told")
        for row, members in ((0.45, gpus), (-0.75, nics)):
            for place, name in enumerate(members):
                x[name] = (left + width * (place + 0.5) / len(members), row)
                _device(ax, *x[name], name, kinds[name])
        left += width + 0.5
    _nvlinks(ax, topology, x, kinds, gpu_name)
    used = _pcie(ax, topology, x, kinds)
    ax.set(xlim=(-0.2, max(left - 0.3, 1)), ylim=(-1.75, 3.0), title="How the devices are wired")
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
    for (a, b), count in pairs.items():
        if count:
            start, end = (x[a][0], 0.72), (x[b][0], 0.72)
            bend = -0.3 - 0.05 * abs(gpus.index(a) - gpus.index(b))
            ax.add_patch(
                FancyArrowPatch(start, end, arrowstyle="-", connectionstyle=f"arc3,rad={bend}", color=CLASSES["NV"], lw=1 + count / 3)
            )
            ax.text((start[0] + end[0]) / 2, 0.95 + 0.32 * abs(end[0] - start[0]) * abs(bend) * 1.6, f"NV{count}", ha="center", fontsize=8)


def _links(topology, gpus, gpu_name, count: int) -> str:
    from labkit.node.limits import spec

    known = spec(gpu_name)
    if known is None or not known.nvlink_gb_per_s_per_link:
        return f"{count} links"
    rate = known.nvlink_gb_per_s_per_link
    return f"{count} links × {rate:g} = {units.rate(count * rate)} one way"


def _pcie(ax, topology, x, kinds) -> list[str]:
    """Draw each NIC's paths to GPUs but the far ones (SYS); give the classes that were drawn, nearest first."""
    used = ["NV"] if any(kind.startswith("NV") for kind in topology.links.values()) else []
    for (a, b), kind in topology.links.items():
        if kind in CLASSES and kind != "SYS":
            same_row = x[a][1] == x[b][1]
            bend = 0.35 if same_row else 0.0
            edge = 0.27 if not same_row else -0.27
            start, end = (x[a][0], x[a][1] - 0.27), (x[b][0], x[b][1] + edge)
            ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-", connectionstyle=f"arc3,rad={bend}", color=CLASSES[kind], lw=2))
            used.append(kind)
    return [kind for kind in CLASSES if kind in used]


def copy_heatmap(table: pd.DataFrame) -> Figure:
    """GPU × GPU copies in GB/s: rows send, columns receive; the diagonal stays within one GPU."""
    matrix = table.pivot_table(index="source", columns="target", values="gb_per_s")
    count = len(matrix)
    figure, ax = canvas.canvas(width=2.6 + 1.0 * count, height=1.6 + 0.72 * count)
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
    """The node's links by datasheet, on one logarithmic axis, with the least time to move 4 GiB over each."""
    figure, ax = canvas.canvas(height=1.2 + 0.5 * len(table))
    ax.barh(table["link"], table["gb_per_s"], color=canvas.THEORY, height=0.6)
    for y, row in enumerate(table.itertuples()):
        ax.text(row.gb_per_s * 1.08, y, f"{units.rate(row.gb_per_s)}: 4 GiB in ≥ {units.seconds(row.ms / 1e3)}", va="center", fontsize=9)
    ax.set_xscale("log")
    ax.set_xlim(10, table["gb_per_s"].max() * 12)
    ax.set(xlabel="GB/s, one direction (log)", title="What the datasheet allows")
    ax.invert_yaxis()
    return canvas.finish(figure, table.attrs["source"])


def host_chart(summary: pd.DataFrame, nominal_gb_per_s: float | None = None) -> Figure:
    """Host copies: one GPU alone, each when all go at once, and their sum; a tick marks one link's datasheet rate."""
    labels = [f"{WAYS[row.copy]}\n{row.memory}" for row in summary.rename(columns={"copy": "copy"}).itertuples()]
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
            ax.text(x, value, units.number(value), ha="center", va="bottom", fontsize=8.5)
    if nominal_gb_per_s and nominal_gb_per_s > 0:
        ax.axhline(nominal_gb_per_s, color=canvas.PREDICTED, lw=1.5, label="one link by datasheet")
    ax.set(xticks=places, xticklabels=labels, ylabel="GB/s")
    ax.set_title("Host and GPU")
    ax.grid(axis="y")
    canvas.legend_above(ax)
    return canvas.finish(figure, summary.attrs["source"])


def share_chart(*tables: pd.DataFrame) -> Figure:
    """Each measured copy as a share of its nominal rate: a dot a copy, flagged where it contradicts the datasheet."""
    figure, ax = canvas.canvas(height=3.2)
    rows = pd.concat([_named(table) for table in tables], ignore_index=True)
    order = list(dict.fromkeys(rows["name"]))
    for verdict, color in (("ok", canvas.MEASURED), ("suspiciously low", canvas.COMMUNICATE), ("impossible", canvas.PREDICTED)):
        hits = rows[rows["verdict"] == verdict]
        if len(hits):
            jitter = [order.index(name) + 0.06 * (place % 5 - 2) for place, name in enumerate(hits["name"])]
            ax.scatter(100 * hits["share_of_limit"], jitter, color=color, s=36, alpha=0.75, label=verdict)
    ax.axvline(100, color=canvas.THEORY, lw=1.2)
    ax.text(100.5, -0.42, "datasheet", fontsize=9, va="top")
    ax.set(yticks=range(len(order)), yticklabels=order, xlabel="% of the link's nominal rate", xlim=(0, 118))
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_title("Measured beside nominal")
    ax.grid(axis="x")
    canvas.legend_above(ax)
    return canvas.finish(figure, tables[0].attrs["source"])


def _named(table: pd.DataFrame) -> pd.DataFrame:
    if "target" in table:
        names = ["GPU → itself" if a == b else "GPU → GPU" for a, b in zip(table["source"], table["target"], strict=True)]
    else:
        together = table["together"].map({True: "all at once", False: "alone"})
        names = [f"{WAYS[c]}, {m}, {t}" for c, m, t in zip(table["copy"], table["memory"], together, strict=True)]
    return table.assign(name=names)[["name", "share_of_limit", "verdict"]]
