"""A parsed topology → a map of the node: NUMA boxes, GPUs and NICs, NVLinks and PCIe paths."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from labkit.charts import canvas
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Path classes, nearest first, with nvidia-smi's own names; distant ones are not drawn but listed.
_CLASSES = {"NV": "#009E73", "PIX": "#0072B2", "PXB": "#56B4E9", "PHB": "#E69F00", "NODE": "#CC79A7", "SYS": "#B5B5B5"}


def node_map(topology, source: str = "", link_gb_per_s: float | None = None) -> Figure:
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
    x: dict[str, tuple[float, float]] = {}
    left = 0.0
    for numa, gpus, nics in groups:
        width = 1.35 * max(len(gpus), len(nics), 1)
        _box(ax, left, width, f"NUMA node {numa}" if numa is not None else "NUMA node not told")
        for row, members in ((0.45, gpus), (-0.75, nics)):
            for place, name in enumerate(members):
                x[name] = (left + width * (place + 0.5) / len(members), row)
                _device(ax, *x[name], name, kinds[name])
        left += width + 0.5
    _nvlinks(ax, topology, x, kinds, link_gb_per_s)
    used = _pcie(ax, topology, x, kinds)
    middle, half = (left - 0.5) / 2, max(left / 2, 2.7)
    ax.set(xlim=(middle - half, middle + half), ylim=(-1.75, 3.0), title="How the devices are wired")
    if not x:
        ax.text(middle, 0.6, "no GPU, so nothing to wire", ha="center", fontsize=10, color=canvas.QUIET)
    for kind in used:
        ax.plot([], [], color=_CLASSES[kind], lw=2.5, label=kind)
    if used:
        canvas.legend_above(ax, columns=6)
    return canvas.finish(figure, source)


def _box(ax, x: float, width: float, text: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = {"boxstyle": "round,pad=0.04", "fc": "#F7F7F7", "ec": canvas.HAIRLINE, "lw": 1.5}
    ax.add_patch(FancyBboxPatch((x + 0.06, -1.15), width - 0.12, 2.6, **shape))
    ax.text(x + width / 2, -1.45, text, ha="center", fontsize=9, color=canvas.QUIET)


def _device(ax, x: float, y: float, name: str, kind: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    color = "#DCEBF5" if kind == "gpu" else "#FBEBD0"
    shape = {"boxstyle": "round,pad=0.03", "fc": color, "ec": "none", "zorder": 3}
    ax.add_patch(FancyBboxPatch((x - 0.46, y - 0.24), 0.92, 0.48, **shape))
    ax.text(x, y, name, ha="center", va="center", fontsize=9, zorder=4)


def _nvlinks(ax, topology, x, kinds, link_gb_per_s) -> None:
    gpus = [name for name in x if kinds[name] == "gpu"]
    pairs = {pair: topology.path(*pair).nvlinks for pair in itertools.combinations(gpus, 2)}
    counts = set(pairs.values())
    if len(gpus) > 2 and len(counts) == 1 and counts != {0}:
        count = counts.pop()
        low, high = x[gpus[0]][0] - 0.4, x[gpus[-1]][0] + 0.4
        ax.plot([low, high], [2.1, 2.1], color=_CLASSES["NV"], lw=9, solid_capstyle="round")
        for gpu in gpus:
            ax.plot([x[gpu][0]] * 2, [0.7, 2.1], color=_CLASSES["NV"], lw=2.5)
        text = f"NVLink: every pair by {_links(link_gb_per_s, count)}"
        ax.text((low + high) / 2, 2.42, text, ha="center", fontsize=10)
        return
    apart = {(a, b): abs(gpus.index(a) - gpus.index(b)) for a, b in pairs}
    most = max([apart[pair] for pair, count in pairs.items() if count], default=1)
    for (a, b), count in pairs.items():
        if count:
            height = 0.45 + 1.5 * (apart[a, b] - 1) / max(most - 1, 1)
            _arc(ax, (x[a][0], 0.72), (x[b][0], 0.72), height, _CLASSES["NV"], 1 + count / 3)
            text = {"ha": "center", "va": "center", "fontsize": 8, "bbox": {"fc": "white", "ec": "none", "pad": 1}}
            ax.text((x[a][0] + x[b][0]) / 2, 0.72 + height, f"NV{count}", **text)


def _arc(ax, start, end, height: float, color: str, width: float) -> None:
    """Draw a curve that rises by `height` at its middle; straight for 0."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    control = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 2 * height)
    ax.add_patch(PathPatch(Path([start, control, end], [1, 3, 3]), fc="none", ec=color, lw=width, capstyle="round"))


def _links(link_gb_per_s: float | None, count: int) -> str:
    links = f"{count} link{'s' * (count > 1)}"
    return f"{links} × {link_gb_per_s:g} = {units.rate(count * link_gb_per_s)} one way" if link_gb_per_s else links


def _pcie(ax, topology, x, kinds) -> list[str]:
    """Draw the PCIe paths between GPUs and from each NIC to its nearest GPUs; return their classes, nearest first."""
    used = {"NV"} if any(kind.startswith("NV") for kind in topology.links.values()) else set()
    order = list(_CLASSES)
    nearest = {}
    for (a, b), kind in topology.links.items():
        if kinds[a] == "gpu" and kinds[b] == "nic" and kind in _CLASSES:
            nearest[b] = min(nearest.get(b, len(order)), order.index(kind))
    for (a, b), kind in topology.links.items():
        between_gpus = kinds[b] == "gpu"
        near = kinds[a] == "gpu" and kinds[b] == "nic" and kind in _CLASSES and order.index(kind) == nearest[b]
        if kind not in _CLASSES or kind == "SYS" or not (between_gpus or near):
            continue
        start, end = (x[a][0], x[a][1] - 0.27), (x[b][0], x[b][1] + (-0.27 if between_gpus else 0.27))
        deepest = 0.5 if nearest else 1.1  # above the NICs, or within the box
        _arc(ax, start, end, -min(0.28 * abs(start[0] - end[0]), deepest) if between_gpus else 0, _CLASSES[kind], 2)
        used.add(kind)
    return [kind for kind in order if kind in used]
