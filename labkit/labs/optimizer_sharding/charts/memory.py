"""Who owns how much by rule, and what DDP, ours and ZeRO's stages hold and send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import fact, sources, where

_RULE_COLORS = {"by number": canvas.SERIES[5], "whole parameters": canvas.SERIES[1], "by elements": canvas.SERIES[2]}
STAGES = {"ddp": "DDP", "ours": "ours", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
_STAGE_COLORS = dict(zip(STAGES, (canvas.SERIES[number] for number in (0, 5, 2, 3, 1)), strict=True))
_NAMES = {
    "unsharded": "unsharded",
    "zero_redundancy": "torch's ZeRO",
    "zero_buckets": "torch's, in buckets",
    "sharded": "ours",
}
# The table's items → the names that the whole workbook's ledgers use.
ITEMS = {item: item for item in ("parameters", "gradients", "states", "activations", "temporary")} | {
    "states": "optimizer"
}
MOMENTS = {"built": "built", "before update": "up to the update", "after update": "in the update"}
KERNELS = {"foreach": "many kernels (foreach)", "fused": "one kernel (fused)"}
BAR, GAP = 0.74, 1.7  # a bar's height, and the room between two groups, in bars


def balance_chart(table: pd.DataFrame, ranks: tuple[int, ...] = (2, 4, 8)) -> Figure:
    """The fullest rank's elements over an equal part, by model and rule; a panel per number of ranks."""
    models = list(dict.fromkeys(table["model"]))
    figure, axes = parts.panels(len(ranks), len(models), row_height=0.55, sharey=True)
    for ax, count in zip(axes, ranks, strict=True):
        for number, (rule, color) in enumerate(_RULE_COLORS.items()):
            shown = table[(table["ranks"] == count) & (table["rule"] == rule)].set_index("model").loc[models]
            places = [place + 0.26 * (number - 1) for place in range(len(models))]
            ax.barh(places, 1 + shown["excess"], 0.24, color=color, label=rule)
        ax.axvline(1.05, color=canvas.INK, ls=(0, (2, 2)), lw=1, label="5 % more")
        ax.set(title=f"{count} ranks", xlabel="fullest rank, × equal parts", xlim=(0, None))
        parts.rows(ax, models)
    canvas.legend_above(axes[0], columns=4)
    return canvas.finish(figure, sources(table))


def stages_chart(held: pd.DataFrame, sent: pd.DataFrame, measured: pd.DataFrame | None = None) -> Figure:
    """Left what a rank holds by the number of ranks, a line per stage; right what it sends per step.

    The right panel's unit is all parameters' bytes. `measured`: a memory table; what its ranks' tensors hold after the
    update is marked.
    """
    figure, (left, right) = canvas.canvas(2, height=3.9, width_ratios=(3, 2))
    for name, label in STAGES.items():
        own = held[held["stage"] == name]
        dashed = (0, (4, 3)) if name == "zero1" else "-"  # as high as ours
        left.plot(own["ranks"], own["held_gib"], color=_STAGE_COLORS[name], ls=dashed, marker="o", ms=4, label=label)
    if measured is not None:
        last = measured[(measured["moment"] == "after update") & (measured["step"] == 1)].drop_duplicates("way")
        gib = (last["parameters"] + last["gradients"] + last["counted_states"]) / 1024
        marked = gib[last["way"].isin(("unsharded", "sharded"))]
        ranks = [fact(measured, "ranks")] * len(marked)
        left.scatter(ranks, marked, marker="D", s=44, color=canvas.INK, zorder=4, label="counted in tensors")
    canvas.logarithmic(left.xaxis)
    counts = sorted(set(held["ranks"]))
    left.set_xticks(counts, [str(count) for count in counts])
    left.set(title="Parameters, gradients and states", xlabel="ranks", ylabel="GiB on a rank", ylim=(0, None))
    left.grid(axis="y")
    parts.rows(right, [STAGES[name] for name in sent["stage"]])
    parts.bars(right, sent["volume"], color=[_STAGE_COLORS[name] for name in sent["stage"]])
    right.set(title="Sent through a link per step", xlabel="parameters' bytes, × (N − 1)/N")
    canvas.legend_above(left, columns=6)
    return canvas.finish(figure, sources(held))


def memory_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Stacked bars by item of the second step's three moments, a bar per way; diamonds where the allocator saw peaks.

    A panel per kernel. `guess` (GiB, a number or a Prediction) is a line in the first panel.
    """
    kernels = list(dict.fromkeys(table["kernel"]))
    shown = table[(table["step"] == table["step"].max()) | (table["moment"] == "built")]
    ways = list(dict.fromkeys(shown["way"]))
    figure, axes = parts.panels(len(kernels), height=1.7 + 0.25 * 3 * (len(ways) + GAP), sharey=True)
    scale, unit = ledgers.memory_unit(shown["predicted"].max())
    for ax, kernel in zip(axes, kernels, strict=True):
        own = shown[shown["kernel"] == kernel]
        groups = [list(MOMENTS).index(moment) for moment in own["moment"]]
        places = grouped_rows(ax, list(MOMENTS.values()), ways, groups, [ways.index(way) for way in own["way"]])
        sizes = {name: own[item].to_numpy() / scale for item, name in ITEMS.items()}
        ledgers.held_bars(ax, places, sizes, height=BAR)
        ledgers.peak_marks(ax, places, own["peak"] / scale, size=26)
        ax.set(title=f"{where(table)}: {KERNELS[kernel]}", xlabel=f"most memory on a rank, {unit}")
    parts.guess_line(axes[0], guess, 1024 / scale)
    canvas.legend_above(axes[0], columns=7)
    return canvas.finish(figure, sources(table))


def grouped_rows(
    ax: Axes, headings: Sequence[str], ways: Sequence[str], groups: Sequence[int], ways_at: Sequence[int]
) -> list[float]:
    """Give the axes a row per way under each heading; return the places of bars by group and way, both as numbers."""
    step = len(ways) + GAP
    rows = [(number * step + row, _NAMES[way]) for number in range(len(headings)) for row, way in enumerate(ways)]
    ax.set_yticks([place for place, _ in rows], [name for _, name in rows], fontsize=9)
    ax.set_ylim(rows[-1][0] + 0.6, -1.6)
    ax.grid(axis="x")
    for number, heading in enumerate(headings):
        ax.text(0, number * step - 0.75, heading, fontsize=9, style="italic", color=canvas.QUIET)
    return [number * step + row for number, row in zip(groups, ways_at, strict=True)]
