"""Which device needs how large a batch, and recorded training beside that accounting."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from labkit.charts import canvas
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS

DASHES = (0, (4, 2))
COLORS = {"fsdp_full": canvas.SERIES[2], "fsdp_grad": canvas.SERIES[1]}
LINKS = {"NVLink": canvas.SERIES[0], "PCIe": canvas.SERIES[5], "ICI": canvas.SERIES[6]}


def machines_chart(table: pd.DataFrame) -> Figure:
    """Tokens a device from which FSDP is compute-bound, a bar a device, coloured by its link."""
    figure, ax = canvas.canvas(height=3.9)
    names = [f"{row.device} (here)" if row.here else row.device for row in table.itertuples()]
    for link, color in LINKS.items():
        own = table[table["link"] == link]
        ax.barh(own.index, own["tokens"], color=color, height=0.66, label=link)
    for row in table.itertuples():
        rates = f"{units.number(row.tflops)} TFLOP/s over {units.rate(row.gb_per_s)}"
        ax.annotate(
            f"{units.number(row.tokens)}  ({rates})",
            (row.tokens, row.Index),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    ax.set_yticks(table.index, names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.5 * table["tokens"].max())
    ax.set(xlabel="tokens a device")
    ax.set_title("Least batch at which FSDP is compute-bound")
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])


def measured_chart(table: pd.DataFrame) -> Figure:
    """Share of a single GPU's speed by tokens a GPU: datasheets' bound, parts added up, and what was measured."""
    figure, ax = canvas.canvas(height=4.2)
    for strategy, rows in table.groupby("strategy", sort=False):
        color, last = COLORS[strategy], rows.iloc[-1]
        tokens = np.geomspace(100, 1.5 * table["tokens"].max(), 200)
        if np.isfinite(last["bound_tokens"]):
            ax.plot(tokens, np.minimum(1, tokens / last["bound_tokens"]), color=color, lw=1.5)
        ax.plot(rows["tokens"], rows["added"], color=color, marker="_", ms=14, mew=2.2, ls="none")
        ax.errorbar(
            rows["tokens"],
            rows["efficiency"],
            yerr=rows["spread"],
            color=color,
            fmt="o",
            ms=7,
            capsize=3,
            label=STRATEGY_LABELS.get(strategy, strategy),
        )
    ax.plot([], [], color=canvas.QUIET, lw=1.5, label="datasheets")
    ax.plot([], [], color=canvas.QUIET, marker="_", ms=14, mew=2.2, ls="none", label="parts added up")
    ax.plot([], [], color=canvas.QUIET, marker="o", ms=7, ls="none", label="measured")
    canvas.logarithmic(ax.xaxis)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylim(0, 1.08)
    ax.set(xlabel="tokens a GPU and micro-batch", ylabel="% of one GPU's speed, a GPU")
    ax.set_title(f"GPT-2 Large on {table.attrs['ranks']} GPUs: bound and measured")
    ax.grid(True)
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])
