"""Timelines: a lane a rank, a bar a step; the gaps are what the lesson is about."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.story import units

# Forward is what the whole workbook calls compute; the backward's parts are darker, so that the two stay one family.
COLORS = {
    "F": canvas.COMPUTE,
    "B": "#00405F",
    "I": "#00405F",
    "W": "#8DB7CE",
    "U": "#009E73",
    "T": canvas.COMMUNICATE,
    "wait": canvas.WAIT,
}
WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward",
    "W": "weight gradient",
    "U": "optimizer",
    "T": "transfer",
    "wait": "waiting",
}
NAMES = {
    "forward_only": "Forward only",
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved 1F1B",
    "zero_bubble": "Zero bubble",
}
WIDE = 0.022  # share of the axis that a bar must span to hold its micro-batch's number


def lanes(ax: Axes, table: pd.DataFrame, end: float) -> None:
    """Draw the spans of a table on `ax`, rank 0 on top, from 0 to `end`."""
    for kind, rows in table.groupby("kind", sort=False):
        thin = kind == "wait"
        ax.barh(
            rows["rank"],
            rows["end_ms"] - rows["start_ms"],
            left=rows["start_ms"],
            height=0.34 if thin else 0.8,
            color=COLORS[kind],
            edgecolor="white",
            linewidth=0 if kind in ("T", "wait") else 0.4,
            alpha=0.55 if thin else 1,
        )
    for row in table[table["kind"].isin(["F", "B", "I"])].itertuples():
        if row.end_ms - row.start_ms > WIDE * end:
            ax.text(
                (row.start_ms + row.end_ms) / 2,
                row.rank,
                row.micro_batch,
                ha="center",
                va="center",
                fontsize=7.5,
                color="white",
            )
    ranks = sorted(table["rank"].unique())
    ax.set(yticks=ranks, yticklabels=[f"rank {rank}" for rank in ranks], xlim=(0, end))
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def legend(figure_ax: Axes, *tables: pd.DataFrame) -> None:
    """Name the colours that the tables use, over the figure."""
    used = {WORDS[kind]: COLORS[kind] for kind in COLORS if any((table["kind"] == kind).any() for table in tables)}
    for text, color in used.items():
        figure_ax.plot([], [], color=color, lw=6, label=text)
    canvas.legend_above(figure_ax, columns=7)


def gantt_chart(measured: pd.DataFrame, simulated: pd.DataFrame) -> Figure:
    """The measured timeline over the simulated one: same axes, same colours; the titles say how long each is."""
    ranks = measured["rank"].nunique()
    figure, axes = canvas.canvas(1, 2, height=1.7 + 0.62 * ranks, sharex=True)
    end = 1.01 * max(measured["end_ms"].max(), simulated["end_ms"].max())
    about = measured.attrs
    schedule, _, rest = about["setting"].partition(", ")
    residual = f"{100 * about['residual']:+.1f} %"
    titles = (
        f"Measured: {NAMES.get(schedule, schedule)}, {rest}: {units.seconds(about['measured_ms'] / 1e3)}",
        f"Simulated with the measured stage times: {units.seconds(about['simulated_ms'] / 1e3)} ({residual})",
    )
    for ax, table, title in zip(axes, (measured, simulated), titles, strict=True):
        lanes(ax, table, end)
        ax.set_title(title)
    axes[1].set_xlabel("ms since all ranks were ready")
    legend(axes[0], measured, simulated)
    clock = (
        f"clocks apart by at most {units.seconds(about['skew_us'] / 1e6)}" if about["skew_us"] else "one system clock"
    )
    return canvas.finish(figure, f"{_idle(measured)}; {about['source']}; {clock}")


def _idle(table: pd.DataFrame) -> str:
    """Say which shares of the ranks' time went into waiting and into transfers."""
    length = (table["end_ms"] - table["start_ms"]).groupby(table["kind"]).sum()
    waited, moved = (length.get(kind, 0.0) / length.sum() for kind in ("wait", "T"))
    return f"measured: {units.percent(waited)} waiting, {units.percent(moved)} transfers"


def schedules_chart(*tables: pd.DataFrame) -> Figure:
    """Schedules under one another on one axis, in units of one rank's forward; the titles give bubble and memory."""
    ranks = max(table["rank"].nunique() for table in tables)
    figure, axes = canvas.canvas(
        1, len(tables), height=1.1 + (0.55 + 0.21 * ranks) * len(tables), sharex=True, squeeze=False
    )
    end = 1.01 * max(table["end_ms"].max() for table in tables)
    for ax, table in zip(axes[:, 0], tables, strict=True):
        lanes(ax, table, end)
        about = table.attrs
        kept = f"rank 0 keeps {units.number(about['in_flight'], 2)} micro-batches"
        ax.set_title(f"{NAMES[about['setting']]}: bubble {units.percent(about['bubble'])}, {kept}", fontsize=10)
        ax.tick_params(axis="y", labelsize=8)
    axes[-1, 0].set_xlabel("times one rank's forward of a micro-batch")
    legend(axes[0, 0], *tables)
    return canvas.finish(figure, tables[0].attrs["source"])
