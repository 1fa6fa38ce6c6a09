"""Our bus bandwidths as shares of those of nccl-tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas
from labkit.provenance import fact, sources
from lessons.collectives.charts.sizes import COLORS, DASHES, mark_sizes
from lessons.collectives.theory import AGAINST_GOAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def against_chart(table: pd.DataFrame) -> Figure:
    """Our bus bandwidth as a share of nccl-tests' by message size, a colour per collective; the dashes are the goal.

    Where nccl-tests is not installed or gave nothing, our own bus bandwidths stand alone.
    """
    from matplotlib.ticker import PercentFormatter

    figure, ax = canvas.canvas(height=4.2)
    compared = table["ratio"].notna().any()
    column = "ratio" if compared else "ours_gb_per_s"
    for collective, line in table.groupby("collective", sort=False):
        look = {"color": COLORS[collective], "marker": "o", "ms": 5, "lw": 1.3, "capsize": 2, "label": collective}
        ax.errorbar(line["bytes"], line[column], yerr=line[column] * line["spread_share"], **look)
    mark_sizes(ax, table["bytes"], most=8)
    ranks = int(table["ranks"].max())
    if compared:
        ax.axhline(AGAINST_GOAL, color=canvas.THEORY, lw=1.2, ls=DASHES, label="goal")
        ax.axhline(1, color=canvas.THEORY, lw=0.8)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        whiskers = table[column] * table["spread_share"]
        ends = (table[column] - whiskers).min(), (table[column] + whiskers).max()
        ax.set_ylim(min(0.95, ends[0] - 0.01), max(1.02, ends[1] + 0.01))
        ax.set(ylabel="% of nccl-tests' bus bandwidth", title=f"Ours against nccl-tests, {ranks} ranks, in one run")
    else:
        why = "gave nothing" if fact(table, "installed") else "is not installed"
        ax.set_ylim(bottom=0)
        ax.set(ylabel="bus bandwidth, GB/s", title=f"Ours alone, {ranks} ranks: nccl-tests {why}")
    ax.set_xlabel("message")
    ax.grid(True)
    canvas.legend_above(ax, columns=7)
    return canvas.finish(figure, sources(table))
