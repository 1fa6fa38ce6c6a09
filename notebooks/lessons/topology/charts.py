"""Lab 01's figures: the node as a map of its wires, and its copies: this run first, the recorded one beside it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_on
from labkit.charts.parts import Layer, beside, close, guess_line, own_scales, panel_each, rows, run_panels
from labkit.provenance import fact, sources
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
        _box(ax, left + 0.06, -1.15, width - 0.12, 2.6, "#F7F7F7", ec=canvas.HAIRLINE, lw=1.5)
        name = f"NUMA node {numa}" if numa is not None else "NUMA node not told"
        ax.text(left + width / 2, -1.45, name, ha="center", fontsize=9, color=canvas.QUIET)
        for row, members in ((0.45, gpus), (-0.75, nics)):
            for place, name in enumerate(members):
                x[name] = (left + width * (place + 0.5) / len(members), row)
                color = "#DCEBF5" if kinds[name] == "gpu" else "#FBEBD0"
                _box(ax, x[name][0] - 0.46, row - 0.24, 0.92, 0.48, color, ec="none", zorder=3)
                ax.text(*x[name], name, ha="center", va="center", fontsize=9, zorder=4)
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


def _box(ax, x: float, y: float, width: float, height: float, color: str, **look: Any) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.03", fc=color, **look))


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
        text = f"NVLink: every pair by {count} link{'s' * (count > 1)}"
        if link_gb_per_s:
            text += f" × {link_gb_per_s:g} GB/s = {units.rate(count * link_gb_per_s)} one way"
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


def _runs(here: pd.DataFrame, recorded: pd.DataFrame) -> list[Layer]:
    """Return what each panel draws: this run, then the recorded one; their rates have no common scale."""
    layers = [layer for panel in run_panels(here, recorded) for layer in panel]
    return sorted(layers, key=lambda layer: layer.recorded)


def _title(layer: Layer) -> str:
    ranks, who, size = (fact(layer.table, name) for name in ("ranks", "who", "size"))
    workers = f"{ranks} {who}{'es' if who == 'process' else 's'}" if ranks > 1 else f"1 {who}"
    return f"{layer.label.capitalize()}: {workers}, {size} a copy"


def pairs_chart(here: pd.DataFrame, recorded: pd.DataFrame) -> Figure:
    """GPU × GPU copies in GB/s: rows send, columns receive; the diagonal stays within one GPU. Takes `copies`."""
    shown = _runs(here, recorded)
    most = max(fact(layer.table, "ranks") for layer in shown)
    size = {"width": 9.6 if len(shown) > 1 else 6.4, "height": 1.6 + 0.6 * max(2, min(most, 8))}
    figure, panels = panel_each(shown, **size)
    for ax, layer in panels:
        rates = layer.table.dropna(subset="source").pivot_table(index="source", columns="target", values="gb_per_s")
        apart = rates.where(~np.eye(len(rates), dtype=bool))
        top = 1.15 * float((apart if len(rates) > 1 else rates).max(axis=None))
        image = ax.imshow(rates, cmap="Blues", vmin=0, vmax=top, aspect="auto")
        for (row, column), value in np.ndenumerate(rates):
            ink = ink_on(image.cmap(value / top))
            ax.text(column, row, units.number(value), ha="center", va="center", color=ink, fontsize=9)
        who, names = fact(layer.table, "who"), [f"{index:.0f}" for index in rates.index]
        ax.set_xticks(range(len(names)), names)
        ax.set_yticks(range(len(names)), names)
        ax.set(xlabel=f"receiving {who}, GB/s", ylabel=f"sending {who}", title=_title(layer))
        ax.spines[:].set_visible(False)
    note = "diagonal: within one memory · colours: each panel by its own rates · "
    return canvas.finish(figure, note + sources(here, recorded))


def host_chart(here: pd.DataFrame, recorded: pd.DataFrame) -> Figure:
    """Host copies: one GPU alone, each while all copy, and, of GPUs, their sum. Takes `host_rates`."""
    shown = _runs(here, recorded)
    bars = {
        "alone_gb_per_s": ("one alone", canvas.SERIES[2]),
        "each_gb_per_s": ("each, while all copy", canvas.SERIES[3]),
        "sum_gb_per_s": ("sum, while all copy", canvas.SERIES[6]),
    }
    most = max(len(layer.table) for layer in shown)
    figure, panels = panel_each(shown, height=1.4 + 0.6 * most, width=10.5 if len(shown) > 1 else 8)
    for ax, layer in panels:
        rows(ax, [f"{row.name}\n{row.memory}" for row in layer.table.itertuples(index=False)], fontsize=8.5)
        processes = fact(layer.table, "who") == "process"  # they take turns on shared cores: no sum
        for step, (column, (label, color)) in enumerate([*bars.items()][: 2 if processes else 3]):
            places = [place + 0.27 * (step - 1) for place in range(len(layer.table))]
            drawn = ax.barh(places, layer.table[column], 0.25, color=color, label=label)
            ax.bar_label(drawn, [units.number(rate) for rate in layer.table[column]], padding=2, fontsize=8)
        ax.margins(x=0.12)
        ax.set(xlabel="GB/s", title=_title(layer))
    return close(figure, here, recorded, note=own_scales(shown))


def rates_chart(here: pd.DataFrame, recorded: pd.DataFrame, guess: Any = None) -> Figure:
    """Each copy that nothing disturbs as a dot, the median of its repeats, by its path; a tick is the link's rate.

    Takes `alone` copies; `guess` is a prediction in GB/s for the recorded node, or None.
    """
    shown = _runs(here, recorded)
    named = [(layer, _by_name(layer.table)) for layer in shown]
    most = max(len(groups) for _, groups in named)
    figure, panels = panel_each(named, rows=most, width=10.5 if len(shown) > 1 else 8)
    for ax, (layer, groups) in panels:
        for place, copies in zip(rows(ax, list(groups)), groups.values(), strict=True):
            aside = [place + 0.07 * (number % 5 - 2) for number in range(len(copies))]
            beaten = copies["verdict"] == "impossible"
            colors = beaten.map({True: canvas.PREDICTED, False: layer.color})
            ax.scatter(copies["gb_per_s"], aside, c=colors, s=26, alpha=0.75, zorder=3)
            limit = copies["datasheet_gb_per_s"].iloc[:1].repeat(2)
            ax.plot(limit, [place - 0.36, place + 0.36], color=canvas.THEORY, lw=2)
            label = {"fontsize": 8, "xytext": (-6, 0), "ha": "right"}
            beside(ax, copies["gb_per_s"].min(), place, units.number(copies["gb_per_s"].median()), **label)
        ax.plot([], [], "o", color=layer.color, label=f"{layer.label}: a copy, median of its repeats")
        if layer.recorded:
            guess_line(ax, guess)
        if layer.table["datasheet_gb_per_s"].notna().any():
            ax.plot([], [], "|", color=canvas.THEORY, ms=12, mew=2, label="limit by driver or datasheet")
        rates = layer.table[["gb_per_s", "datasheet_gb_per_s"]]
        ax.set_xlim(rates.min(axis=None) / 2.5, rates.max(axis=None) * 1.6)
        canvas.logarithmic(ax.xaxis)
        ax.set(xlabel="GB/s (log)", title=_title(layer))
    return close(figure, here, recorded)


def _by_name(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the copies of each path, and of each memory of the host; the fastest path first."""
    named = table["name"] + ("\n" + table["memory"]).where(table["memory"].notna(), "")
    groups = {str(name): rows for name, rows in table.groupby(named)}
    return dict(sorted(groups.items(), key=lambda group: -group[1]["gb_per_s"].median()))
