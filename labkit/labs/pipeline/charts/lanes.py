"""Timelines: a lane a rank, a bar a step; the gaps are what the lesson is about."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.charts.parts import rows, swatches
from labkit.provenance import fact, sources
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
_WIDE = 0.022  # share of the axis that a bar must span to hold its micro-batch's number


def _lanes(ax: Axes, table: pd.DataFrame, end: float) -> None:
    """Draw the spans of a table on `ax`, rank 0 on top, from 0 to `end`."""
    ranks = sorted(table["rank"].unique())
    rows(ax, [f"rank {rank}" for rank in ranks])
    ax.grid(visible=False)
    for kind, spans in table.groupby("kind", sort=False):
        thin = kind == "wait"
        look = {"height": 0.34 if thin else 0.8, "alpha": 0.55 if thin else 1, "color": COLORS[kind]}
        look |= {"edgecolor": "white", "linewidth": 0 if kind in ("T", "wait") else 0.4}
        ax.barh(spans["rank"], spans["end_ms"] - spans["start_ms"], left=spans["start_ms"], **look)
    numbered = table[table["kind"].isin(["F", "B", "I"]) & (table["end_ms"] - table["start_ms"] > _WIDE * end)]
    inside = {"ha": "center", "va": "center", "fontsize": 7.5, "color": "white"}
    for span in numbered.itertuples():
        ax.text((span.start_ms + span.end_ms) / 2, span.rank, span.micro_batch, **inside)
    ax.set_xlim(0, end)
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def words_used(*tables: pd.DataFrame) -> dict[str, str]:
    """Return what the tables' spans are called, and their colours."""
    return {WORDS[kind]: COLORS[kind] for kind in COLORS if any((table["kind"] == kind).any() for table in tables)}


def gantt_chart(measured: pd.DataFrame, simulated: pd.DataFrame) -> Figure:
    """The measured timeline over the simulated one: same axes, same colours; the titles say how long each is."""
    figure, axes = canvas.canvas(1, 2, height=1.7 + 0.62 * measured["rank"].nunique(), sharex=True)
    end = 1.01 * max(measured["end_ms"].max(), simulated["end_ms"].max())
    schedule, _, rest = fact(measured, "setting").partition(", ")
    lasts = [units.seconds(fact(measured, name) / 1e3) for name in ("measured_ms", "simulated_ms")]
    titles = (
        f"Measured: {NAMES.get(schedule, schedule)}, {rest}: {lasts[0]}",
        f"Simulated with the measured stage times: {lasts[1]} ({100 * fact(measured, 'residual'):+.1f} %)",
    )
    for ax, table, title in zip(axes, (measured, simulated), titles, strict=True):
        _lanes(ax, table, end)
        ax.set_title(title)
    axes[1].set_xlabel("ms since all ranks were ready")
    swatches(axes[0], words_used(measured, simulated))
    canvas.legend_above(axes[0], columns=7)
    skew = fact(measured, "skew_us")
    clock = f"clocks apart by at most {units.seconds(skew / 1e6)}" if skew else "one system clock"
    return canvas.finish(figure, f"{_idle(measured)}; {sources(measured)}; {clock}")


def _idle(table: pd.DataFrame) -> str:
    """Say which shares of the ranks' time went into waiting and into transfers."""
    length = (table["end_ms"] - table["start_ms"]).groupby(table["kind"]).sum()
    waited, moved = (length.get(kind, 0.0) / length.sum() for kind in ("wait", "T"))
    return f"measured: {units.percent(waited)} waiting, {units.percent(moved)} transfers"


def schedules_chart(*tables: pd.DataFrame) -> Figure:
    """Schedules under one another on one axis, in units of one rank's forward; the titles give bubble and memory."""
    ranks = max(table["rank"].nunique() for table in tables)
    height = 1.1 + (0.55 + 0.21 * ranks) * len(tables)
    figure, axes = canvas.canvas(1, len(tables), height=height, sharex=True, squeeze=False)
    end = 1.01 * max(table["end_ms"].max() for table in tables)
    for ax, table in zip(axes[:, 0], tables, strict=True):
        _lanes(ax, table, end)
        kept = f"rank 0 keeps {units.number(fact(table, 'in_flight'), 2)} micro-batches"
        bubble = units.percent(fact(table, "bubble"))
        ax.set_title(f"{NAMES[fact(table, 'setting')]}: bubble {bubble}, {kept}", fontsize=10)
        ax.tick_params(axis="y", labelsize=8)
    axes[-1, 0].set_xlabel("times one rank's forward of a micro-batch")
    swatches(axes[0, 0], words_used(*tables))
    canvas.legend_above(axes[0, 0], columns=7)
    return canvas.finish(figure, sources(tables[0]))
