"""Where a step's time and memory go: bars of the account, lanes of the trace, the memory's layers, its segments."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.charts.profile import setting_label
from labkit.story import units

LAYERS = {
    "base": ("parameters and states", "#B0B0B0"),
    "optimizer": ("new optimizer states", "#009E73"),
    "gradients": ("gradients", "#D55E00"),
    "activations": ("activations", "#56B4E9"),
    "temporary": ("temporary", "#F0E442"),
}
LETTER = 0.0085  # share of the axis that a letter of a phase's name takes


def timeline_chart(table: pd.DataFrame) -> Figure:
    """Memory in use by kind, moment by moment, with what the allocator has reserved; the phases stand on top."""
    figure, axes = canvas.canvas(height=4.2)
    if table.empty:
        return _without_memory(figure, axes, table, "ms")
    kinds = [kind for kind in LAYERS if table[f"{kind}_mib"].any()]
    layers = [table[f"{kind}_mib"] / 1024 for kind in kinds]
    names, colors = zip(*(LAYERS[kind] for kind in kinds), strict=True)
    axes.stackplot(table["t_ms"], layers, labels=names, colors=colors, step="post", linewidth=0)
    axes.plot(
        table["t_ms"],
        table["reserved_mib"] / 1024,
        color=canvas.INK,
        lw=1.2,
        ls=(0, (4, 2)),
        drawstyle="steps-post",
        label="reserved",
    )
    end = table["t_ms"].iloc[-1]
    axes.set(xlim=(0, end), ylim=(0, 1.14 * max(table["reserved_mib"].max(), table["allocated_mib"].max()) / 1024))
    axes.set(
        xlabel="ms",
        ylabel="GiB",
        title=f"{setting_label(table)}: at most {units.gib(table['allocated_mib'].max() / 1024)}",
    )
    starts = table.loc[table["phase"] != table["phase"].shift(), ["t_ms", "phase"]]
    for start, stop, phase in zip(starts["t_ms"], [*starts["t_ms"][1:], end], starts["phase"], strict=True):
        axes.axvline(start, color=canvas.QUIET, lw=0.6)
        text = phase if (stop - start) / end > LETTER * len(phase) else phase[0].upper()
        if (stop - start) / end > LETTER * len(text):
            axes.text(
                (start + stop) / 2,
                0.965,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color=canvas.QUIET,
                transform=axes.get_xaxis_transform(),
            )
    canvas.legend_above(axes, columns=6)
    return canvas.finish(figure, table.attrs["source"])


def segments_chart(table: pd.DataFrame) -> Figure:
    """The allocator's segments at the end of backward, a bar each, largest first; the filled part is in use."""
    figure, axes = canvas.canvas(height=3.6)
    if table.empty:
        return _without_memory(figure, axes, table, "rank 0's segments")
    bars = table[table["segments"] == 1]
    axes.bar(range(len(bars)), bars["segment_mib"], color=canvas.IDLE, width=0.9, label="reserved")
    axes.bar(range(len(bars)), bars["allocated_mib"], color=canvas.COMPUTE, width=0.9, label="in use")
    unused, reserved = units.percent(table.attrs["unused_share"]), units.gib(table["segment_mib"].sum() / 1024)
    smaller = int(table["segments"].sum()) - len(bars)
    more = f"; {smaller} smaller ones are not drawn" if smaller else ""
    title = f"{setting_label(table)}: {unused} of {reserved} reserved is not in use"
    axes.set(title=title, ylabel="MiB", xlabel=f"rank 0's segments, largest first{more}")
    axes.set(xlim=(-0.8, len(bars) - 0.2), xticks=[])
    axes.grid(axis="y")
    canvas.legend_above(axes)
    return canvas.finish(figure, table.attrs["source"])


def _without_memory(figure: Figure, ax: Axes, table: pd.DataFrame, across: str) -> Figure:
    ax.set(title="Memory", xlabel=across, ylabel="GiB", xticks=[], yticks=[])
    ax.text(0.5, 0.5, "this run had no GPU memory to measure", ha="center", transform=ax.transAxes)
    return canvas.finish(figure, table.attrs["source"])
