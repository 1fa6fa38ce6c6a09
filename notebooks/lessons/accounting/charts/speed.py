"""What bounds the speed, by batch and by device, and published answers beside ours."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_like
from labkit.charts.parts import bars, beside, guess_line, rows, swatches
from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = (0, (4, 2))
_WAYS = {"at once": (canvas.SERIES[2], "o"), "in turn": (canvas.SERIES[5], "s")}


def batch_chart(table: pd.DataFrame, guess=None) -> Figure:
    """ms of one block's forward by batch: computing, gathering weights, exchanging activations, and these two in turn.

    A marked crossing is the least batch that is compute-bound. `guess`: tokens in all. Both axes are logarithmic.
    """
    figure, ax = canvas.canvas(height=4.4)
    ax.plot(table["tokens"], table["math_ms"], color=canvas.COMPUTE, lw=2.2, label="compute")
    ax.plot(table["tokens"], table["fsdp_ms"], color=canvas.COMMUNICATE, lw=1.8, label="weights (FSDP)")
    ax.plot(table["tokens"], table["tensor_ms"], color=canvas.COMMUNICATE, lw=1.8, ls=":", label="activations (TP)")
    ax.plot(
        table["tokens"],
        table["fsdp_ms"] + table["tensor_ms"],
        color=canvas.COMMUNICATE,
        lw=1.2,
        ls=_DASHES,
        label="both in turn",
    )
    per_token = table["math_ms"].iloc[0] / table["tokens"].iloc[0]
    for (name, tokens), side in zip(fact(table, "bounds").items(), (-1, 1), strict=True):
        if not isfinite(tokens):
            continue
        color, marker = _WAYS[name]
        ax.plot(tokens, tokens * per_token, marker, ms=8, color=color, zorder=4)
        ax.axvline(tokens, color=color, lw=1, ls=_DASHES)
        ax.annotate(
            f"{name}: {units.count(round(tokens))}",
            (tokens, 0.03),
            xycoords=ax.get_xaxis_transform(),
            xytext=(6 * side, 0),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            fontsize=9,
            color=ink_like(color),
        )
    guess_line(ax, guess)
    canvas.logarithmic(ax.xaxis)
    canvas.logarithmic(ax.yaxis)
    for place, side, name in ((0.01, "left", "← communication-bound"), (0.99, "right", "compute-bound →")):
        ax.text(place, 1.01, name, ha=side, va="bottom", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)
    ax.set(xlabel="batch, tokens in all", ylabel="ms, one block's forward")
    ax.grid(True)
    ax.set_title("One block on the mesh", loc="center")
    canvas.legend_above(ax)
    return canvas.finish(figure, fact(table, "source"))


def splits_chart(table: pd.DataFrame) -> Figure:
    """The least compute-bound batch by how many of the devices share a matrix; where there is no dot, no batch is."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    figure, ax = canvas.canvas(height=3.9)
    for name, column in (("at once", "at_once"), ("in turn", "in_turn")):
        color, marker = _WAYS[name]
        ax.plot(table["tensor"], table[column], color=color, marker=marker, lw=1.5, ms=6, label=name)
    never = table[table["at_once"].isna()]["tensor"]
    if len(never):
        ax.axvspan(
            never.min() / 2**0.5,
            table["tensor"].max() * 2**0.5,
            color=canvas.IDLE,
            alpha=0.5,
            lw=0,
            label="no batch is compute-bound",
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set(
        major_locator=FixedLocator(list(table["tensor"])),
        minor_locator=NullLocator(),
        major_formatter=ScalarFormatter(),
    )
    ax.set_xlim(table["tensor"].min() / 2**0.5, table["tensor"].max() * 2**0.5)
    canvas.logarithmic(ax.yaxis)
    ax.set(xlabel=f"tensor shards Y; FSDP has {fact(table, 'devices')} / Y", ylabel="least batch, tokens in all")
    ax.set_title(f"{fact(table, 'devices')} devices shared out")
    ax.grid(True)
    canvas.legend_above(ax)
    return canvas.finish(figure, fact(table, "source"))


_COLORS = {"fsdp_full": canvas.SERIES[2], "fsdp_grad": canvas.SERIES[1]}
_LINKS = {"NVLink": canvas.SERIES[0], "PCIe": canvas.SERIES[5], "ICI": canvas.SERIES[6]}


def machines_chart(table: pd.DataFrame) -> Figure:
    """Tokens per device from which FSDP is compute-bound, one bar per device, coloured by its link."""
    figure, ax = canvas.canvas(height=3.9)
    names = [f"{row.device} (here)" if row.here else row.device for row in table.itertuples()]
    rows(ax, names)
    ax.grid(False)
    bars(ax, table["tokens"], color=[_LINKS[link] for link in table["link"]])
    for row in table.itertuples():
        rates = f"{units.number(row.tflops)} TFLOP/s over {units.rate(row.gb_per_s)}"
        beside(ax, row.tokens, row.Index, f"{units.number(row.tokens)}  ({rates})", fontsize=8.5)
    swatches(ax, _LINKS)
    ax.set_xlim(0, 1.5 * table["tokens"].max())
    ax.set(xlabel="tokens per device")
    ax.set_title("Least batch at which FSDP is compute-bound")
    canvas.legend_above(ax)
    return canvas.finish(figure, fact(table, "source"))


def measured_chart(table: pd.DataFrame) -> Figure:
    """Share of a single GPU's speed by tokens per GPU: datasheets' bound, parts added up, and what was measured."""
    from matplotlib.ticker import PercentFormatter

    figure, ax = canvas.canvas(height=4.2)
    for strategy, group in table.groupby("strategy", sort=False):
        color, last = _COLORS[strategy], group.iloc[-1]
        tokens = np.geomspace(100, 1.5 * table["tokens"].max(), 200)
        if np.isfinite(last["bound_tokens"]):
            ax.plot(tokens, np.minimum(1, tokens / last["bound_tokens"]), color=color, lw=1.5)
        ax.plot(group["tokens"], group["added"], color=color, marker="_", ms=14, mew=2.2, ls="none")
        ax.errorbar(
            group["tokens"],
            group["efficiency"],
            yerr=group["spread"],
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
    ax.set(xlabel="tokens per GPU and micro-batch", ylabel="speed per GPU, % of one GPU alone")
    ax.set_title(f"GPT-2 Large on {fact(table, 'ranks')} GPUs: bound and measured")
    ax.grid(True)
    canvas.legend_above(ax)
    return canvas.finish(figure, fact(table, "source"))
