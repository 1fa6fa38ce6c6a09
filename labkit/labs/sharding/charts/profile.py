"""Where a step's time and memory go: bars of the account, lanes of the trace, the memory's layers, its segments."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.labs.ddp_fsdp.charts import NAMES
from labkit.ui import canvas, units

COLLECTIVES = {"all_gather": canvas.COMMUNICATE, "reduce_scatter": "#96650A", "all_reduce": "#F2C14E"}
SPANS = ("compute", "copy", "communicate")
LAYERS = {
    "base": ("parameters and states", "#B0B0B0"),
    "optimizer": ("new optimizer states", "#009E73"),
    "gradients": ("gradients", "#D55E00"),
    "activations": ("activations", "#56B4E9"),
    "temporary": ("temporary", "#F0E442"),
}
LETTER = 0.0085  # share of the axis that a letter of a phase's name takes


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
        ax.barh(places, table["hidden_ms"], left=compute - table["hidden_ms"], height=0.62, facecolor=canvas.COMPUTE,
                edgecolor=canvas.COMMUNICATE, hatch="////", linewidth=0, label="communication meanwhile")  # fmt: skip
        ax.barh(places, exposed, left=compute, color=canvas.COMMUNICATE, height=0.62, label="exposed communication")
        ax.barh(places, table["idle_ms"], left=compute + exposed, color=canvas.IDLE, height=0.62, label="idle")
        for place, row in zip(places, table.itertuples(), strict=True):
            hidden = f", {units.percent(row.overlap)} hidden" if row.overlap == row.overlap else ""
            ax.text(row.window_ms, place, f" {units.seconds(row.window_ms / 1e3)}{hidden}", va="center", fontsize=8)
        names = [NAMES.get(row.strategy, row.strategy) for row in table.itertuples()]
        ax.set(title=_where(table), yticks=places, yticklabels=names, xlabel="ms a step")
        ax.set_ylim(len(table) - 0.4, -0.6)
        ax.set_xlim(0, (1.25 + 0.2 * len(tables)) * table["window_ms"].max())
        ax.grid(axis="x")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, _sources(*tables))


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
        ax.set(title=f"{_setting(table)}: {share}", yticks=range(len(ranks)))
        ax.set_yticklabels([f"rank {rank}" for rank in ranks])
        ax.set_ylim(len(ranks) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
    axes[-1, 0].set(xlabel="ms since the first rank began", xlim=(0, None))
    kinds = {(row.span, row.collective) for table in tables for row in table.itertuples()}
    for what, collective in sorted(kinds, key=lambda kind: (SPANS.index(kind[0]), kind[1])):
        axes[0, 0].plot([], [], color=_color(what, collective), lw=6, label=(collective or what).replace("_", "-"))
    canvas.legend_above(axes[0, 0], columns=6)
    return canvas.finish(figure, _sources(*tables))


def timeline_chart(table: pd.DataFrame) -> Figure:
    """Memory in use by kind, moment by moment, with what the allocator has reserved; the phases stand on top."""
    figure, axes = canvas.canvas(height=4.2)
    if table.empty:
        return _without_memory(figure, axes, table, "ms")
    kinds = [kind for kind in LAYERS if table[f"{kind}_mib"].any()]
    layers = [table[f"{kind}_mib"] / 1024 for kind in kinds]
    names, colors = zip(*(LAYERS[kind] for kind in kinds), strict=True)
    axes.stackplot(table["t_ms"], layers, labels=names, colors=colors, step="post", linewidth=0)
    axes.plot(table["t_ms"], table["reserved_mib"] / 1024, color=canvas.INK, lw=1.2, ls=(0, (4, 2)),
              drawstyle="steps-post", label="reserved")  # fmt: skip
    end = table["t_ms"].iloc[-1]
    axes.set(xlim=(0, end), ylim=(0, 1.14 * max(table["reserved_mib"].max(), table["allocated_mib"].max()) / 1024))
    axes.set(xlabel="ms", ylabel="GiB", title=f"{_setting(table)}: at most {_gib(table['allocated_mib'].max())}")
    starts = table.loc[table["phase"] != table["phase"].shift(), ["t_ms", "phase"]]
    for start, stop, phase in zip(starts["t_ms"], [*starts["t_ms"][1:], end], starts["phase"], strict=True):
        axes.axvline(start, color=canvas.QUIET, lw=0.6)
        text = phase if (stop - start) / end > LETTER * len(phase) else phase[0].upper()
        if (stop - start) / end > LETTER * len(text):
            axes.text((start + stop) / 2, 0.965, text, ha="center", va="center", fontsize=8, color=canvas.QUIET,
                      transform=axes.get_xaxis_transform())  # fmt: skip
    canvas.legend_above(axes, columns=6)
    return canvas.finish(figure, table.attrs["source"])


def segments_chart(table: pd.DataFrame) -> Figure:
    """The allocator's segments at the end of backward, a bar each, largest first; the filled part is in use."""
    figure, axes = canvas.canvas(height=3.6)
    if table.empty:
        return _without_memory(figure, axes, table, "rank 0's segments")
    bars = table[table["segments"] == 1]
    axes.bar(range(len(bars)), bars["segment_mib"], color=canvas.IDLE, width=0.9, label="reserved")
    axes.bar(range(len(bars)), bars["allocated_mib"], color=canvas.COMPUTE, width=0.9, label="in use")
    unused, reserved = units.percent(table.attrs["unused_share"]), _gib(table["segment_mib"].sum())
    smaller = int(table["segments"].sum()) - len(bars)
    more = f"; {smaller} smaller ones are not drawn" if smaller else ""
    title = f"{_setting(table)}: {unused} of {reserved} reserved is not in use"
    axes.set(title=title, ylabel="MiB", xlabel=f"rank 0's segments, largest first{more}")
    axes.set(xlim=(-0.8, len(bars) - 0.2), xticks=[])
    axes.grid(axis="y")
    canvas.legend_above(axes)
    return canvas.finish(figure, table.attrs["source"])


def _without_memory(figure: Figure, ax: Axes, table: pd.DataFrame, across: str) -> Figure:
    ax.set(title="Memory", xlabel=across, ylabel="GiB", xticks=[], yticks=[])
    ax.text(0.5, 0.5, "this run had no GPU memory to measure", ha="center", transform=ax.transAxes)
    return canvas.finish(figure, table.attrs["source"])


def _color(what: str, collective: str) -> str:
    if what == "communicate":
        return COLLECTIVES.get(collective, canvas.COMMUNICATE)
    return canvas.COMPUTE if what == "compute" else "#8DB7CE"


def _setting(table: pd.DataFrame) -> str:
    strategy, ranks = table.attrs["setting"].split(", ")
    return f"{NAMES.get(strategy, strategy)}, {ranks}"


def _gib(mib: float) -> str:
    return units.size(mib * units.MIB)


def _where(table: pd.DataFrame) -> str:
    size = "small" if table.attrs["small"] else "full"
    return f"{'Recorded' if table.attrs['source'].startswith('recorded') else 'Here'}, {size} size"


def _sources(*tables: pd.DataFrame) -> str:
    return " · ".join(dict.fromkeys(table.attrs["source"] for table in tables))
