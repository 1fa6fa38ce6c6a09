"""A block's forward over the batch, and the least batch by how the mesh is shared out."""

from __future__ import annotations

from math import isfinite

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from labkit.charts import canvas
from labkit.story import units

DASHES = (0, (4, 2))
WAYS = {"at once": (canvas.SERIES[2], "o"), "in turn": (canvas.SERIES[5], "s")}


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
        ls=DASHES,
        label="both in turn",
    )
    per_token = table["math_ms"].iloc[0] / table["tokens"].iloc[0]
    for (name, tokens), side in zip(table.attrs["bounds"].items(), (-1, 1), strict=True):
        if not isfinite(tokens):
            continue
        color, marker = WAYS[name]
        ax.plot(tokens, tokens * per_token, marker, ms=8, color=color, zorder=4)
        ax.axvline(tokens, color=color, lw=1, ls=DASHES)
        ax.annotate(
            f"{name}: {units.count(round(tokens))}",
            (tokens, 0.03),
            xycoords=ax.get_xaxis_transform(),
            xytext=(6 * side, 0),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            fontsize=9,
            color=color,
        )
    if (value := getattr(guess, "value", guess)) is not None:
        ax.axvline(value, color=canvas.PREDICTED, lw=1.4, label="your prediction")
    canvas.logarithmic(ax.xaxis)
    canvas.logarithmic(ax.yaxis)
    for place, side, name in ((0.01, "left", "← communication-bound"), (0.99, "right", "compute-bound →")):
        ax.text(place, 1.01, name, ha=side, va="bottom", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)
    ax.set(xlabel="batch, tokens in all", ylabel="ms, one block's forward")
    ax.grid(True)
    ax.set_title("One block on the mesh", loc="center")
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])


def splits_chart(table: pd.DataFrame) -> Figure:
    """The least compute-bound batch by how many of the devices share a matrix; where there is no dot, no batch is."""
    figure, ax = canvas.canvas(height=3.9)
    for name, column in (("at once", "at_once"), ("in turn", "in_turn")):
        color, marker = WAYS[name]
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
    ax.set(xlabel=f"tensor shards Y; FSDP has {table.attrs['devices']} / Y", ylabel="least batch, tokens in all")
    ax.set_title(f"{table.attrs['devices']} devices shared out")
    ax.grid(True)
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])
