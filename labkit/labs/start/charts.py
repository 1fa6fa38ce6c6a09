"""Tables of lab 00 → figures."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.charts import canvas
from labkit.story import units

WAYS = {"torchrun": "bare torchrun, 1 point", "launch": "launch(), 1 point", "sweep": "launch(), a sweep"}


def wall_drawing() -> Figure:
    """Draw the wall that a run crosses: a plan goes in, rows come out, nothing else."""
    figure, ax = canvas.canvas(width=9.6, height=3.2)
    ax.axis("off")
    ax.set(xlim=(0, 10), ylim=(0, 4), title="A run crosses a wall; two things cross it")
    for x, y, width, height, color, text in (
        (0.2, 1.0, 2.6, 2.0, "#DCEBF5", "this notebook's kernel\n\nplans, tables, charts\nno torch, no GPU memory"),
        (6.6, 3.05, 3.2, 0.62, "#FBEBD0", "rank 0 · GPU 0"),
        (6.6, 2.18, 3.2, 0.62, "#FBEBD0", "rank 1 · GPU 1"),
        (6.6, 1.31, 3.2, 0.62, "#FBEBD0", "rank 2 · GPU 2"),
        (6.6, 0.44, 3.2, 0.62, "#FBEBD0", "rank 3 · GPU 3"),
    ):
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.04", fc=color, ec="none"))
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)
    ax.plot([4.7, 4.7], [0.2, 3.8], color="#B5B5B5", lw=7, solid_capstyle="butt")
    for y, ends, text, color in (
        (2.5, (2.95, 6.45), "plan (JSON)", canvas.MEASURED),
        (1.45, (6.45, 2.95), "rows (JSON lines)", canvas.COMMUNICATE),
    ):
        ax.add_patch(
            FancyArrowPatch((ends[0], y), (ends[1], y), arrowstyle="-|>", mutation_scale=16, lw=2.5, color=color)
        )
        ax.text(3.75, y + 0.16, text, ha="center", fontsize=9.5)
    return canvas.finish(figure, "torchrun's agent starts one worker process a GPU")


def best_chart(table: pd.DataFrame) -> Figure:
    """The least time for one gigabyte moved and one teraflop computed, by datasheet: shorter is better."""
    figure, ax = canvas.canvas(height=1.2 + 0.42 * len(table))
    colors = [canvas.COMMUNICATE if what.startswith(("move", "read")) else canvas.COMPUTE for what in table["what"]]
    ax.barh(table["what"], table["least_ms"], color=colors, height=0.62)
    for y, row in enumerate(table.itertuples()):
        text = f"{units.seconds(row.least_ms / 1e3)} at {units.number(row.rate)} {row.unit}"
        ax.text(row.least_ms * 1.08, y, text, va="center", fontsize=9)
    ax.set_xlim(table["least_ms"].min() / 2, table["least_ms"].max() * 12)
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="least milliseconds (log)", title="No measurement on this GPU may be shorter than this")
    ax.invert_yaxis()
    return canvas.finish(figure, table.attrs["source"])


def startup_chart(table: pd.DataFrame) -> Figure:
    """Every rank's start-up as a timeline, rank 0 on top: what a launch costs before anything is measured."""
    parts = list(dict.fromkeys(table["part"]))
    figure, ax = canvas.canvas(height=1.5 + 0.38 * table["rank"].nunique())
    for part, color in zip(parts, canvas.SERIES, strict=False):
        rows = table[table["part"] == part]
        ax.barh(rows["rank"], rows["seconds"], left=rows["start_s"], height=0.68, color=color, label=part)
    ax.set(
        yticks=sorted(table["rank"].unique()),
        ylabel="rank",
        xlabel="seconds since the launch",
        title="Start-up, rank by rank",
    )
    ax.invert_yaxis()
    ax.grid(axis="x")
    canvas.legend_above(ax)
    return canvas.finish(figure, table.attrs["source"])


def sums_chart(table: pd.DataFrame) -> Figure:
    """Each sum over all ranks, in order: the first one pays for the connections."""
    figure, ax = canvas.canvas(height=3.2)
    ax.plot(table["iteration"] + 1, 1e3 * table["seconds"], "o", color=canvas.COMMUNICATE, ms=6)
    canvas.logarithmic(ax.yaxis)
    ax.set(
        xticks=[1, *range(5, len(table) + 1, 5)],
        xlabel="which sum (1 is the first)",
        ylabel="milliseconds (log)",
        title=f"{len(table)} sums over {table.attrs['gpus']} ranks, one after another",
    )
    ax.grid(axis="y")
    return canvas.finish(figure, table.attrs["source"])


def cost_chart(table: pd.DataFrame) -> Figure:
    """Wall time of bare torchrun, of a later launch() for one point and for a sweep: start-up, then the rest."""
    order = [way for way in WAYS if way in set(table["way"])]
    rows = table.set_index("way").loc[order]
    figure, ax = canvas.canvas(height=1.2 + 0.45 * len(order))
    names = [WAYS[way] + (f" of {table.attrs['points']} points" if way == "sweep" else "") for way in order]
    ax.barh(
        names,
        rows["seconds"],
        xerr=rows["spread_seconds"],
        color=canvas.COMPUTE,
        height=0.6,
        label="first step, measuring, ending",
    )
    ax.barh(names, rows["startup_seconds"], color=canvas.WAIT, height=0.6, label="start-up")
    longest = (rows["seconds"] + rows["spread_seconds"]).max()
    for y, row in enumerate(rows.itertuples()):
        text = f"{units.seconds(row.seconds)}, {row.over_torchrun:.2f}×"
        ax.text(row.seconds + row.spread_seconds + 0.02 * longest, y, text, va="center", fontsize=9)
    ax.set(xlabel="seconds of wall time, from call to return", xlim=(0, longest * 1.25), title="What a launch costs")
    ax.invert_yaxis()
    canvas.legend_above(ax)
    return canvas.finish(figure, f"{table.attrs['source']} · {int(rows['count'].min())} pairs")
