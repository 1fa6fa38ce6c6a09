"""Where a step's time goes: bars of the account, lanes of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS
from labkit.story.profile import host_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLLECTIVES = {
    "all_gather": canvas.COMMUNICATE,
    "reduce_scatter": "#96650A",
    "all_reduce": "#F2C14E",
    "broadcast": "#5B3A8E",  # far from the others: it is rare and short
}
_RARE = 3  # spans of a kind on one rank; so few are drawn at least as wide as the eye can see
SPANS = {"compute": canvas.COMPUTE, "copy": "#8DB7CE", "communicate": canvas.COMMUNICATE}


def breakdown_chart(*tables: pd.DataFrame, names: Mapping[str, str] = STRATEGY_LABELS, with_ms: bool = True) -> Figure:
    """What a step's time goes into, a bar per strategy and number of ranks; a panel per run.

    Communication while something computes is hatched; the text says how long the step is and how much is hidden.
    `with_ms`: False where the profiler lengthens steps so much that no one should compare them.
    """
    tables = parts.distinct(tables)
    figure, axes = parts.panels(len(tables), rows=max(len(table) for table in tables))
    for ax, table in zip(axes, tables, strict=True):
        places = parts.rows(ax, [names.get(name, name) for name in map(str, table["strategy"])])
        computed = parts.bars(ax, table["compute_ms"], color=canvas.COMPUTE, label="compute")
        hatched = {"facecolor": canvas.COMPUTE, "edgecolor": canvas.COMMUNICATE, "hatch": "////", "linewidth": 0}
        hidden, label = table["hidden_ms"], "communication meanwhile"
        ax.barh(places, hidden, left=computed - hidden, height=parts.BAR, label=label, **hatched)
        exposed = {"color": canvas.COMMUNICATE, "label": "exposed communication"}
        end = parts.bars(ax, table["exposed_ms"], start=computed, **exposed)
        parts.bars(ax, table["idle_ms"], start=end, color=canvas.IDLE, label="idle")
        for place, row in zip(places, table.itertuples(), strict=True):
            said = [units.seconds(row.window_ms / 1e3)] if with_ms else []
            said += [f"{units.percent(row.overlap)} hidden"] if pd.notna(row.overlap) else []
            parts.beside(ax, row.window_ms, place, ", ".join(said), fontsize=8)
        ax.set(title=where(table), xlabel="ms per step")
        ax.set_xlim(0, (1.25 + 0.2 * len(tables)) * table["window_ms"].max())
    canvas.legend_above(axes[0])
    waits = [
        f"{where(table).split(',')[0].lower()}, host-bound, idle share of the idlest GPU: {', '.join(idle)}"
        for table in tables
        if (idle := host_bound(table, names))
    ]
    return canvas.finish(figure, parts.own_scales(axes) + " · ".join([*waits, sources(*tables)]))


def trace_chart(
    *tables: pd.DataFrame,
    names: Mapping[str, str] = STRATEGY_LABELS,
    own_axes: bool = False,
    with_ms: bool = True,
) -> Figure:
    """Profiled steps on one axis, two thin lanes per rank: computing above, communicating below.

    One table shows every rank; of several, each shows its rank 0. With `own_axes`, as for several machines, each table
    shows every rank on its own axis. `with_ms`: as in `breakdown_chart`, for the titles.
    """
    tables = parts.distinct(tables, "strategy", "ranks")
    own_axes = own_axes or len(tables) == 1
    tables = tuple(table if own_axes else table[table["rank"] == 0] for table in tables)
    ranks = [sorted(table["rank"].unique()) for table in tables]
    heights = [1 + 0.62 * len(shown) for shown in ranks]
    figure, grid = canvas.canvas(
        1, len(tables), height=0.9 + 0.85 * sum(heights), sharex=not own_axes, squeeze=False, height_ratios=heights
    )
    axes = list(grid[:, 0])
    for ax, table, shown in zip(axes, tables, ranks, strict=True):
        _lanes(ax, table, shown)
        of_which = f", of which rank {shown[0]} is shown" if len(shown) < fact(table, "ranks") else ""
        run = f"{where(table)}, " if len(tables) > 1 and own_axes else ""
        length = f": {units.seconds(table['end_ms'].max() / 1e3)}" if with_ms else ""
        ax.set_title(f"{run}{setting_label(table, names)}{of_which}{length}")
        ax.set(xlim=(0, None), xlabel="ms since the first rank began" if own_axes or ax is axes[-1] else "")
    kinds = {(row.span, row.collective) for table in tables for row in table.itertuples()}
    ordered = sorted(kinds, key=lambda kind: (list(SPANS).index(kind[0]), kind[1]))
    parts.swatches(axes[0], {(kind[1] or kind[0]).replace("_", "-"): _color(*kind) for kind in ordered})
    return parts.close(figure, *tables, note=parts.own_scales(tables) if own_axes else "", columns=6)


def setting_label(table: pd.DataFrame, names: Mapping[str, str] = STRATEGY_LABELS) -> str:
    """Return the profiled strategy and its ranks in words: "FSDP, full, 2 ranks"."""
    strategy, ranks = fact(table, "strategy"), fact(table, "ranks")
    return f"{names.get(strategy, strategy)}, {ranks} rank{'s' if ranks > 1 else ''}"


def _lanes(ax: Axes, table: pd.DataFrame, ranks: list[int]) -> None:
    parts.rows(ax, [f"rank {rank}" for rank in ranks])
    ax.grid(False)
    ax.tick_params(axis="y", length=0)
    for (span, collective), rows in table.groupby(["span", "collective"], sort=False):
        for rank, of_rank in rows.groupby("rank"):
            least_ms = table["end_ms"].max() / 300 if len(of_rank) <= _RARE else 0.0
            lengths = zip(
                of_rank["start_ms"], (of_rank["end_ms"] - of_rank["start_ms"]).clip(lower=least_ms), strict=True
            )
            below = span == "communicate"
            parts.lane(ax, ranks.index(rank), lengths, color=_color(span, collective), below=below)


def _color(span: str, collective: str) -> str:
    return COLLECTIVES.get(collective, SPANS[span]) if span == "communicate" else SPANS[span]
