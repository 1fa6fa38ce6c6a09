"""The nodes of a run, drawn: each with its ranks, GPUs and network cards, and the network between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.charts import canvas
from labkit.provenance import fact
from labkit.story.nodes import ONE_NODE, link_rate
from labkit.story.words import say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DRAWN = 8  # nodes; of more the first ones are drawn, and the title counts all
MOST_CARDS = 8  # of a node
LINE_SPACING = 0.32  # between two lines of text
NARROWEST, WIDEST = 24, 44  # letters that a node's box has room for; a longer line is cut


def nodes_map(table: pd.DataFrame) -> Figure | Markdown:
    """Draw the nodes of `labkit.tables.nodes.nodes_table` in a row, their cards, and the network below them.

    Of a single node, a sentence says that there is nothing between nodes.
    """
    if len(table) == 1:
        return say(ONE_NODE)
    drawn = table.head(MOST_DRAWN)
    texts = [_lines(node, fact(table, "cards")[node.node]) for node in drawn.itertuples()]
    most_lines = max(map(len, texts))
    letters = min(max(NARROWEST, *(len(line) for lines in texts for line in lines)), WIDEST)
    height = LINE_SPACING * most_lines + 2.1
    figure, ax = canvas.canvas(width=max(7.5, 0.095 * letters * len(drawn)), height=height)
    ax.axis("off")
    for place, (node, lines) in enumerate(zip(drawn.itertuples(), texts, strict=True)):
        _draw(ax, float(place), node, [_truncate(line, letters) for line in lines], LINE_SPACING * most_lines)
    left, right = -0.45, len(drawn) - 0.55
    ax.plot([left, right], [-0.95, -0.95], color=canvas.COMMUNICATE, lw=5, solid_capstyle="round")
    ax.text((left + right) / 2, -1.2, "network between the nodes", ha="center", fontsize=9, color=canvas.QUIET)
    rest = f", the first {len(drawn)} drawn" if len(drawn) < len(table) else ""
    title = f"{len(table)} nodes{rest}: their cards, and the most that each link carries in one direction"
    ax.set(xlim=(-0.6, len(drawn) - 0.4), ylim=(-1.35, LINE_SPACING * most_lines + 0.1), title=title)
    return canvas.finish(figure, fact(table, "source"))


def _lines(node, cards: list[tuple[str, float | None]]) -> list[str]:
    """Return what a node's box says: its number, ranks, what it computes with, and a line per network card."""
    computes = node.gpus if node.gpus != "none" else f"{node.cores} CPU cores"
    named = [f"{name} · {f'{gbit_per_s:g} Gbit/s' if gbit_per_s else 'rate not told'}" for name, gbit_per_s in cards]
    rest = [f"and {len(cards) - MOST_CARDS} more"] if len(cards) > MOST_CARDS else []
    return [f"node {node.node}", f"ranks {node.ranks}", computes, *named[:MOST_CARDS], *rest]


def _truncate(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _draw(ax, place: float, node, lines: list[str], height: float) -> None:
    """Draw one node, and the link of the interface that leads to the others."""
    from matplotlib.patches import FancyBboxPatch

    shape = {"boxstyle": "round,pad=0.03", "fc": "#F7F7F7", "ec": canvas.HAIRLINE, "lw": 1.5}
    ax.add_patch(FancyBboxPatch((place - 0.42, -0.02), 0.84, height - 0.06, **shape))
    for number, line in enumerate(lines):
        color = canvas.INK if not number else canvas.QUIET
        ax.text(place, height - LINE_SPACING * (number + 0.6), line, ha="center", va="center", fontsize=9, color=color)
    ax.plot([place, place], [-0.05, -0.92], color=canvas.COMMUNICATE, lw=2)
    ax.text(place + 0.04, -0.32, node.interface, ha="left", va="center", fontsize=8.5, color=canvas.QUIET)
    ax.text(place + 0.04, -0.64, link_rate(node), ha="left", va="center", fontsize=8.5, color=canvas.INK)
