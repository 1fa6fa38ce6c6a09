"""Tables of lab 01 → figures: copies beside their links, and the node as a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_on
from labkit.charts.parts import by_origin, panels, rows
from labkit.provenance import fact, sources
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WAYS = {"host_to_gpu": "host → GPU", "gpu_to_host": "GPU → host"}


def copy_heatmap(table: pd.DataFrame) -> Figure:
    """GPU × GPU copies in GB/s: rows send, columns receive; the diagonal stays within one GPU."""
    matrix = table.pivot_table(index="source", columns="target", values="gb_per_s")
    count = len(matrix)
    figure, (ax,) = panels(1, width=max(5.6, 2.6 + count), height=1.6 + 0.72 * count)
    between = matrix.where(matrix.index.to_numpy()[:, None] != matrix.columns.to_numpy()[None, :])
    top = float((between if count > 1 else matrix).max().max())
    image = ax.imshow(matrix, cmap="Blues", vmin=0, vmax=top * 1.15, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        ink = ink_on(image.cmap(value / (1.15 * top)))
        ax.text(column, row, units.number(value), ha="center", va="center", color=ink)
    who = "GPU" if fact(table, "device") == "cuda" else "process"
    names = [f"{who} {index}" for index in matrix.columns]
    ax.set_xticks(range(count), names)
    ax.set_yticks(range(count), names)
    ax.set(xlabel="receives", ylabel="sends", title="Copies in GB/s (diagonal: within one memory)")
    ax.spines[:].set_visible(False)
    return canvas.finish(figure, sources(table))


def host_chart(summary: pd.DataFrame, nominal_gb_per_s: float | None = None) -> Figure:
    """Host copies: one GPU alone, each while all copy, and their sum; a line marks one link's datasheet rate."""
    figure, (ax,) = panels(1, height=3.7)
    columns = (
        ("alone_gb_per_s", "one GPU alone", canvas.SERIES[0]),
        ("each_then_gb_per_s", "each, while all copy", canvas.SERIES[4]),
        ("all_at_once_gb_per_s", "sum, while all copy", canvas.SERIES[2]),
    )
    behind = {"fc": "white", "ec": "none", "pad": 0.6}
    for step, (column, label, color) in enumerate(columns):
        drawn = ax.bar(
            [n + 0.27 * (step - 1) for n in range(len(summary))], summary[column], 0.25, color=color, label=label
        )
        labels = [units.number(value) for value in summary[column]]
        ax.bar_label(drawn, labels, padding=2, fontsize=8.5, bbox=behind)
    if nominal_gb_per_s and nominal_gb_per_s > 0:
        ax.axhline(nominal_gb_per_s, color=canvas.PREDICTED, lw=1.5, zorder=0.9, label="one link by datasheet")
    ax.set_xticks(range(len(summary)), [f"{_WAYS[row.copy]}\n{row.memory}" for row in summary.itertuples()])
    ax.set(ylabel="GB/s", title="Copies between host and GPU")
    ax.grid(axis="y")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(summary))


_VERDICTS = {"ok": canvas.MEASURED, "suspiciously low": canvas.COMMUNICATE, "impossible": canvas.PREDICTED}


def share_chart(*tables: pd.DataFrame) -> Figure:
    """Each measured copy as a share of its datasheet rate: one dot per copy, flagged where it exceeds it."""
    copies = pd.concat([_named(table) for table in tables], ignore_index=True)
    order = list(dict.fromkeys(copies["name"]))
    figure, (ax,) = panels(1, rows=len(order), row_height=0.27)
    rows(ax, order)
    for verdict, color in _VERDICTS.items():
        hits = copies[copies["verdict"] == verdict]
        if len(hits):
            jitter = [order.index(name) + 0.06 * (place % 5 - 2) for place, name in enumerate(hits["name"])]
            ax.scatter(100 * hits["share_of_limit"], jitter, color=color, s=36, alpha=0.75, label=verdict)
    shares = 100 * copies["share_of_limit"].dropna()
    right = max(118, 1.08 * shares.max()) if len(shares) else 118
    ax.axvline(100, color=canvas.THEORY, lw=1.2)
    ax.set(xlabel="% of the link's nominal rate", xlim=(0, right), title="Measured beside nominal")
    ax.set_ylim(len(order) - 0.4, -1.3)
    ax.text(100 + right / 200, -1.2, "datasheet", fontsize=9, va="top")
    if shares.empty:
        nothing: dict[str, Any] = {"ha": "center", "va": "center", "color": canvas.QUIET}
        ax.text(50, len(order) / 2 - 0.5, "no limit is known for these copies", **nothing)
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(tables[0]))


def compare_chart(table: pd.DataFrame) -> Figure:
    """Predicted, nominal, measured and recorded GB/s of both ways on one axis."""
    order = list(dict.fromkeys(table["way"]))
    figure, (ax,) = panels(1, height=2.6)
    rows(ax, order)
    by_origin(ax, table, "gb_per_s", [order.index(way) for way in table["way"]])
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="GB/s (log)", title="One link, several answers")
    canvas.legend_above(ax, markerscale=0.75)
    return canvas.finish(figure, sources(table))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    if "target" in table:
        names = [
            "GPU → itself" if a == b else "GPU → GPU" for a, b in zip(table["source"], table["target"], strict=True)
        ]
    else:
        together = table["together"].map({True: "all copy", False: "alone"})
        names = [f"{_WAYS[c]}, {m}, {t}" for c, m, t in zip(table["copy"], table["memory"], together, strict=True)]
    return table.assign(name=names)[["name", "share_of_limit", "verdict"]]
