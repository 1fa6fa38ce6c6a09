"""Our bus bandwidths beside those of nccl-tests, in one run."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from labkit.charts import canvas
from labkit.labs.collectives.charts.axes import COLORS, DASHES, mark_sizes

GOAL = 0.98


def against_chart(table: pd.DataFrame) -> Figure:
    """Our bus bandwidth as a share of nccl-tests' by message size, a colour a collective; the dashes are the goal.

    Where nccl-tests is not installed or gave nothing, our own bus bandwidths stand alone.
    """
    figure, ax = canvas.canvas(height=4.2)
    compared = table["ratio"].notna().any()
    column = "ratio" if compared else "ours_gb_per_s"
    for collective, own in table.groupby("collective", sort=False):
        ax.errorbar(
            own["bytes"],
            own[column],
            yerr=own[column] * own["spread_share"],
            color=COLORS[collective],
            marker="o",
            ms=5,
            lw=1.3,
            capsize=2,
            label=collective,
        )
    mark_sizes(ax, table["bytes"], most=8)
    ranks = int(table["ranks"].max())
    if compared:
        ax.axhline(GOAL, color=canvas.THEORY, lw=1.2, ls=DASHES, label="goal")
        ax.axhline(1, color=canvas.THEORY, lw=0.8)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set_ylim(min(0.95, table[column].min() - 0.01), max(1.02, table[column].max() + 0.01))
        ax.set(ylabel="% of nccl-tests' bus bandwidth", title=f"Ours against nccl-tests, {ranks} ranks, in one run")
    else:
        why = "gave nothing" if table.attrs["installed"] else "is not installed"
        ax.set_ylim(bottom=0)
        ax.set(ylabel="bus bandwidth, GB/s", title=f"Ours alone, {ranks} ranks: nccl-tests {why}")
    ax.set_xlabel("message")
    ax.grid(True)
    canvas.legend_above(ax, columns=7)
    return canvas.finish(figure, table.attrs["source"])
