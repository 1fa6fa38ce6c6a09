"""Where a step's time goes: bars of the account, lanes of the trace."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.provenance import sources, where
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS

COLLECTIVES = {"all_gather": canvas.COMMUNICATE, "reduce_scatter": "#96650A", "all_reduce": "#F2C14E"}


SPANS = ("compute", "copy", "communicate")


def breakdown_chart(*tables: pd.DataFrame) -> Figure:
    """What a step goes into, a bar a strategy and number of ranks; a panel a run.

    Communication while something computes is hatched; the text says how long the step is and how much is hidden.
    """
    height = 1.5 + 0.42 * max(len(table) for table in tables)
    figure, axes = canvas.canvas(len(tables), height=height, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        places = range(len(table))
        compute, exposed = table["compute_ms"], table["exposed_ms"]
        ax.barh(places, compute, color=canvas.COMPUTE, height=0.62, label="compute")
        ax.barh(
            places,
            table["hidden_ms"],
            left=compute - table["hidden_ms"],
            height=0.62,
            facecolor=canvas.COMPUTE,
            edgecolor=canvas.COMMUNICATE,
            hatch="////",
            linewidth=0,
            label="communication meanwhile",
        )
        ax.barh(places, exposed, left=compute, color=canvas.COMMUNICATE, height=0.62, label="exposed communication")
        ax.barh(places, table["idle_ms"], left=compute + exposed, color=canvas.IDLE, height=0.62, label="idle")
        for place, row in zip(places, table.itertuples(), strict=True):
            hidden = f", {units.percent(row.overlap)} hidden" if row.overlap == row.overlap else ""
            ax.text(row.window_ms, place, f" {units.seconds(row.window_ms / 1e3)}{hidden}", va="center", fontsize=8)
        names = [STRATEGY_LABELS.get(row.strategy, row.strategy) for row in table.itertuples()]
        ax.set(title=where(table), yticks=places, yticklabels=names, xlabel="ms a step")
        ax.set_ylim(len(table) - 0.4, -0.6)
        ax.set_xlim(0, (1.25 + 0.2 * len(tables)) * table["window_ms"].max())
        ax.grid(axis="x")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(*tables))


def trace_chart(*tables: pd.DataFrame) -> Figure:
    """Profiled steps on one axis, two thin lanes a rank: computing above, communicating below.

    One table shows every rank; of several, each shows its rank 0.
    """
    tables = [table if len(tables) == 1 else table[table["rank"] == 0] for table in tables]
    lanes = [sorted(table["rank"].unique()) for table in tables]
    heights = [1 + 0.62 * len(ranks) for ranks in lanes]
    figure, axes = canvas.canvas(
        1, len(tables), height=0.9 + 0.85 * sum(heights), sharex=True, squeeze=False, height_ratios=heights
    )
    for ax, table, ranks in zip(axes[:, 0], tables, lanes, strict=True):
        for (what, collective), rows in table.groupby(["span", "collective"], sort=False):
            for rank, own in rows.groupby("rank"):
                spans = list(zip(own["start_ms"], own["end_ms"] - own["start_ms"], strict=True))
                top = ranks.index(rank) + (0.02 if what == "communicate" else -0.36)
                ax.broken_barh(spans, (top, 0.34), facecolors=_color(what, collective), linewidth=0)
        share = units.seconds(table["end_ms"].max() / 1e3)
        ax.set(title=f"{setting_label(table)}: {share}", yticks=range(len(ranks)))
        ax.set_yticklabels([f"rank {rank}" for rank in ranks])
        ax.set_ylim(len(ranks) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
    axes[-1, 0].set(xlabel="ms since the first rank began", xlim=(0, None))
    kinds = {(row.span, row.collective) for table in tables for row in table.itertuples()}
    for what, collective in sorted(kinds, key=lambda kind: (SPANS.index(kind[0]), kind[1])):
        axes[0, 0].plot([], [], color=_color(what, collective), lw=6, label=(collective or what).replace("_", "-"))
    canvas.legend_above(axes[0, 0], columns=6)
    return canvas.finish(figure, sources(*tables))


def _color(what: str, collective: str) -> str:
    if what == "communicate":
        return COLLECTIVES.get(collective, canvas.COMMUNICATE)
    return canvas.COMPUTE if what == "compute" else "#8DB7CE"


def setting_label(table: pd.DataFrame) -> str:
    strategy, ranks = table.attrs["setting"].split(", ")
    return f"{STRATEGY_LABELS.get(strategy, strategy)}, {ranks}"
