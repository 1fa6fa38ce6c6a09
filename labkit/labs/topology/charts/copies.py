"""Tables of lab 01 → figures: copies beside their links, and the node as a map."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.story import units

WAYS = {"host_to_gpu": "host → GPU", "gpu_to_host": "GPU → host"}


def copy_heatmap(table: pd.DataFrame) -> Figure:
    """GPU × GPU copies in GB/s: rows send, columns receive; the diagonal stays within one GPU."""
    matrix = table.pivot_table(index="source", columns="target", values="gb_per_s")
    count = len(matrix)
    figure, ax = canvas.canvas(width=max(5.6, 2.6 + count), height=1.6 + 0.72 * count)
    off = matrix.where(matrix.index.values[:, None] != matrix.columns.values[None, :])
    top = (off if count > 1 else matrix).max().max()
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=top * 1.15, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        ax.text(
            column,
            row,
            units.number(value),
            ha="center",
            va="center",
            color="white" if value > 0.6 * top else canvas.INK,
        )
    who = "GPU" if table.attrs["device"] == "cuda" else "process"
    names = [f"{who} {index}" for index in matrix.columns]
    ax.set(
        xticks=range(count),
        xticklabels=names,
        yticks=range(count),
        yticklabels=names,
        xlabel="receives",
        ylabel="sends",
    )
    ax.set_title("Copies in GB/s (diagonal: within one memory)")
    ax.spines[:].set_visible(False)
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
                units.number(value),
                (x, value),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8.5,
                bbox={"fc": "white", "ec": "none", "pad": 0.6},
            )
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
    for verdict, color in (
        ("ok", canvas.MEASURED),
        ("suspiciously low", canvas.COMMUNICATE),
        ("impossible", canvas.PREDICTED),
    ):
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
        ax.text(
            50, len(order) / 2 - 0.5, "no limit is known for these copies", ha="center", va="center", color=canvas.QUIET
        )
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
        names = [
            "GPU → itself" if a == b else "GPU → GPU" for a, b in zip(table["source"], table["target"], strict=True)
        ]
    else:
        together = table["together"].map({True: "all at once", False: "alone"})
        names = [f"{WAYS[c]}, {m}, {t}" for c, m, t in zip(table["copy"], table["memory"], together, strict=True)]
    return table.assign(name=names)[["name", "share_of_limit", "verdict"]]
