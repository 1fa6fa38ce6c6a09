"""The nodes of a run, drawn: each with its ranks, GPUs and interface, and the network between them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from labkit.charts import canvas
from labkit.provenance import fact

MOST_DRAWN = 8  # nodes; of more the first ones are drawn, and the title counts all


def nodes_map(table: pd.DataFrame) -> Figure:
    """Draw the nodes of `labkit.tables.nodes.nodes_table` in a row, and the network below them."""
    drawn = table.head(MOST_DRAWN)
    figure, ax = canvas.canvas(width=max(7.5, 2.6 * len(drawn)), height=3.6)
    ax.axis("off")
    for place, node in enumerate(drawn.itertuples()):
        _node(ax, float(place), node)
    left, right = -0.45, len(drawn) - 0.55
    ax.plot([left, right], [-0.95, -0.95], color=canvas.COMMUNICATE, lw=5, solid_capstyle="round")
    ax.text((left + right) / 2, -1.25, "network between the nodes", ha="center", fontsize=9, color=canvas.QUIET)
    rest = f", the first {len(drawn)} drawn" if len(drawn) < len(table) else ""
    ax.set(xlim=(-0.6, max(len(drawn) - 0.4, 1.4)), ylim=(-1.5, 1.5), title=f"{len(table)} nodes{rest}")
    return canvas.finish(figure, fact(table, "source"))


def _node(ax, place: float, node) -> None:
    """Draw one node: what it computes with, its ranks, and the rate of its link as far as it is known."""
    shape = {"boxstyle": "round,pad=0.03", "fc": "#F7F7F7", "ec": canvas.HAIRLINE, "lw": 1.5}
    ax.add_patch(FancyBboxPatch((place - 0.42, -0.1), 0.84, 1.4, **shape))
    computes = node.gpus if node.gpus != "none" else f"{node.cores} CPU cores"
    lines = [(1.1, f"node {node.node}", canvas.INK), (0.75, f"ranks {node.ranks}", canvas.QUIET)]
    for y, text, color in [*lines, (0.4, computes, canvas.QUIET), (0.05, node.interface, canvas.QUIET)]:
        ax.text(place, y, text, ha="center", va="center", fontsize=9, color=color)
    ax.plot([place, place], [-0.12, -0.92], color=canvas.COMMUNICATE, lw=2)
    rate = "rate not told" if pd.isna(node.link_gb_per_s) else f"{node.link_gb_per_s:g} GB/s"
    ax.text(place + 0.04, -0.5, rate, ha="left", va="center", fontsize=8.5, color=canvas.INK)
