"""Tables of theory → figures: an all-reduce in two levels, many more GPUs, and which link a report's speeds need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "ddp": "DDP, one flat ring",
    "hierarchical": "DDP, two levels",
    "tree": "DDP, two levels, tree",
    "fsdp": "FSDP over all GPUs",
    "hsdp": "HSDP",
}
METHODS = {"flat": "one flat ring", "hierarchical": "two levels"}
_COLORS = {
    "ddp": canvas.SERIES[0],
    "flat": canvas.SERIES[0],
    "hierarchical": canvas.SERIES[2],
    "tree": canvas.SERIES[4],
    "fsdp": canvas.SERIES[3],
    "hsdp": canvas.SERIES[1],
}
_MODELS = (*(color for color in canvas.SERIES[:7] if color != canvas.PREDICTED), "#444444", "#7A4B9A", "#8A5A2B")
_DASHES = (0, (4, 2))
_ALMOST = 0.9  # an efficiency that many call good


def two_levels_chart(table: pd.DataFrame) -> Figure:
    """An all-reduce's time by size, one panel per number of nodes, flat and hierarchical; both axes are logarithmic."""
    counts = list(dict.fromkeys(table["nodes"]))
    figure, axes = parts.panels(len(counts), height=4.2, sharey=True)
    for ax, nodes in zip(axes, counts, strict=True):
        rows = table[table["nodes"] == nodes]
        for method, line in rows.groupby("method", sort=False):
            ax.plot(line["whole_bytes"], line["call_ms"], color=_COLORS[method], lw=1.8, label=METHODS[method])
        _sizes(ax, rows["whole_bytes"])
        ax.set(xlabel="message, KiB to GiB (log)", title=f"{nodes} nodes of {rows['per_node'].iloc[0]} GPUs")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("ms per all-reduce (log)")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, fact(table, "source"))


def _sizes(ax: Axes, sizes: pd.Series) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    shown = sorted(set(sizes))[:: max(1, len(set(sizes)) // 4)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    ax.set_xticks(shown, [_exact(size) for size in shown])


def _exact(size_bytes: float) -> str:
    """Return a power of two as short as it is exact: 64 KiB, not 64.0 KiB."""
    number, unit = units.size(size_bytes).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _percent(ax: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    ax.axhline(_ALMOST, color=canvas.HAIRLINE, lw=1.2, zorder=0)
    ax.set_ylim(0, 1.05)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("efficiency, % of computing alone")
    ax.grid(True)


def projection_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Efficiency by number of GPUs, a panel without and one with simulated stragglers, a colour per strategy.

    `guess`: percent of efficiency that the reader expects of two levels on the most GPUs, a number or a Prediction.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, axes = parts.panels(2, height=4.4, sharey=True)
    panels = {"efficiency": "By two lines alone", "simulated_efficiency": "With simulated stragglers"}
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        for strategy, line in table.groupby("strategy", sort=False):
            # HSDP often lies on DDP's two levels: one is broad, the other dashed.
            form = {"hierarchical": {"lw": 4, "ms": 8, "alpha": 0.6}, "hsdp": {"ls": _DASHES}}.get(strategy, {})
            look = {"color": _COLORS[strategy], "marker": "o", "ms": 5, "lw": 1.6, "label": NAMES[strategy]} | form
            ax.plot(line["gpus"], line[column], **look)
        counts = sorted(set(table["gpus"]))
        ax.set_xscale("log")
        ax.xaxis.set(major_locator=FixedLocator(counts), minor_locator=NullLocator())
        ax.set_xticks(counts, [units.count(count) for count in counts])
        _percent(ax)
        ax.set(xlabel="GPUs (log)", title=title)
    axes[1].set_ylabel("")
    if (value := getattr(guess, "value", guess)) is not None:
        axes[1].plot(table["gpus"].max(), value / 100, "D", color=canvas.PREDICTED, ms=7, label="your prediction")
    canvas.shared_legend(figure, axes, columns=6)
    return canvas.finish(figure, fact(table, "source"))


def published_chart(table: pd.DataFrame) -> Figure:
    """The least link that each printed speed needs, by GPUs, a line per model; a panel per kind of GPU.

    The dashed line is the link that the report names. Both axes are logarithmic.
    """
    kinds = list(dict.fromkeys(table["gpu"]))
    figure, axes = parts.panels(len(kinds), height=4.6, sharey=True)
    models = list(dict.fromkeys(table.sort_values("parameters")["model"]))
    shades = dict(zip(models, _MODELS, strict=False))
    for ax, kind in zip(axes, kinds, strict=True):
        rows = table[table["gpu"] == kind]
        for model, line in rows.groupby("model", sort=False):
            ax.plot(line["gpus"], line["least_gbit_per_s"], "o-", color=shades[model], ms=5, lw=1.3, label=model)
        named = rows["link_gbit_per_second"].dropna()
        if not named.empty:
            ax.axhline(named.iloc[0], color=canvas.THEORY, ls=_DASHES, lw=1.3, label="the named link")
        ax.set_xscale("log", base=2)
        counts = sorted(set(rows["gpus"]))
        ax.set_xticks(counts, [str(count) for count in counts])
        ax.set(xlabel="GPUs (log)", title=f"{kind}: {'link named' if not named.empty else 'no link named'}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("least rate of a node's link, Gbit/s (log)")
    canvas.shared_legend(figure, axes, columns=10)
    return canvas.finish(figure, fact(table, "source"))
