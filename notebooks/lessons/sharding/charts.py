"""Tables of lab 05 → figures: this run first, the recorded one beside it or, where both have one size, behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.charts.ink import ink_on
from labkit.charts.ledgers import memory_layers
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import trace_chart as trace_chart
from labkit.provenance import fact, is_recorded, run_name
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS
from labkit.theory.memory import ITEMS
from lessons.sharding.theory import PER_NODE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOADS = {"large": 1.0, "shared out": 0.45}  # opacity of the bars
_SEGMENT_EDGES_MIB, _SEGMENT_SIZES = (64, 1024), ("under 64 MiB", "64 MiB to 1 GiB", "over 1 GiB")
_PUBLISHED = {"ddp": "ddp_speedup", "fsdp_grad": "fsdp_speedup", "fsdp_full": "fsdp_speedup"}


def strategies_chart(*runs: tuple[pd.DataFrame, pd.DataFrame]) -> Figure:
    """Per run, given as `strategies` and `memory`, a row: the part of one GPU's rate that is kept, and what is held.

    On all GPUs of the run; the memory is that of the large batch, item by item, with the measured peak.
    """
    runs = parts.distinct(runs)
    tables = [[_on_all(table) for table in run] for run in runs]
    order = [name for name in STRATEGY_LABELS if any(name in set(pair[0]["strategy"]) for pair in tables)]
    size = {"width": 11.5, "height": 0.9 + (0.9 + 0.42 * len(order)) * len(runs)}
    figure, axes = canvas.canvas(2, len(runs), squeeze=False, **size)
    for (rates, held), (left, right) in zip(tables, axes, strict=True):
        _kept_rates(left, rates, order)
        rows = held[held["load"] == "large"].set_index("strategy").reindex(order)
        scale, unit = ledgers.memory_unit(rows["predicted"].max())
        places = parts.rows(right, [""] * len(order))
        ledgers.held_bars(right, places, {item: rows[item] / scale for item in ITEMS if rows[item].any()})
        ledgers.peak_marks(right, places, rows["peak"] / scale)
        if rows["predicted"].isna().all():
            right.text(0.02, 0, "this run counted no memory", transform=right.get_yaxis_transform(), va="center")
        right.set(title=f"Memory, {_run(rates)}", xlabel=f"{unit} each, large batch")
    swatches = {"large batch": canvas.QUIET, "the report's batch, shared out": canvas.IDLE}
    parts.swatches(axes[0, 0], swatches)
    return parts.close(figure, *(table for run in runs for table in run), note=parts.own_scales(runs))


def _on_all(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one GPU alone and of all GPUs of the run."""
    return table[table["ranks"].isin([1, table["ranks"].max()])]


def _run(table: pd.DataFrame, alone: bool = False) -> str:
    """Return whose run a panel shows, and on how many: "recorded run on 2 GPUs", or on one of them `alone`."""
    run = run_name(table).lower()
    device, more = ("CPU process", "CPU processes") if fact(table, "small") else ("GPU", "GPUs")
    return f"{run} on one {device}" if alone else f"{run} on {fact(table, 'ranks')} {more}"


def _kept_rates(ax: Axes, table: pd.DataFrame, order: Sequence[str]) -> None:
    """Draw two bars per strategy, the large batch above the batch that is shared out."""
    parts.rows(ax, [STRATEGY_LABELS[name] for name in order])
    color = canvas.RECORDED if is_recorded(table) else canvas.MEASURED
    for load, opacity in _LOADS.items():
        rows = table[table["load"] == load].set_index("strategy").reindex(order)
        at = [place + (-0.2 if load == "large" else 0.2) for place in range(len(order))]
        whiskers = {"xerr": 100 * rows["spread_efficiency"], "capsize": 2, "ecolor": canvas.INK}
        ax.barh(at, 100 * rows["efficiency"], 0.38, color=(color, opacity), **whiskers)
        for place, kept in zip(at, rows["efficiency"], strict=True):
            if pd.notna(kept):
                look = {"va": "center", "fontsize": 7.5, "color": ink_on(color if opacity == 1 else "white")}
                ax.text(2, place, f"{100 * kept:.0f} %", zorder=4, **look)
    longest = 100 * (table["efficiency"] + table["spread_efficiency"].fillna(0.0)).max()
    ax.set(title=f"Rate, {_run(table)}", xlabel="% of the rate of one alone, each", xlim=(0, max(110, 1.05 * longest)))


def memory_chart(*runs: tuple[pd.DataFrame, pd.DataFrame]) -> Figure:
    """Per run, given as `memory_timeline` and `segments`, a row: memory in use by kind, moment by moment, and segments.

    Segments are added up by size; the blue part is in use. A run on CPUs has no such record: only the others are drawn.
    Raises ValueError where none is left.
    """
    recorded = [run for run in parts.distinct(runs) if not any(table.empty for table in run)]
    if not recorded:
        raise ValueError("none of these runs has a record of the GPU's memory")
    rows = len(recorded)
    figure, axes = canvas.canvas(2, rows, squeeze=False, width=11.5, height=0.8 + 3.4 * rows, width_ratios=(3, 2))
    for (timeline, segments), (left, right) in zip(recorded, axes, strict=True):
        memory_layers(left, timeline)
        most = units.gib(timeline["allocated_mib"].max() / 1024)
        left.set(xlabel="ms", ylabel="GiB", title=f"Memory, {_run(timeline, alone=True)}: at most {most}")
        _segments(right, segments)
    letters = "F, B, O: forward, backward, optimizer · "
    return parts.close(figure, *(table for run in recorded for table in run), note=letters, columns=4)


def _segments(ax: Axes, segments: pd.DataFrame) -> None:
    each = segments["segment_mib"] / segments["segments"]  # the last row adds up small ones
    sizes = pd.cut(each, [0, *_SEGMENT_EDGES_MIB, float("inf")], labels=_SEGMENT_SIZES)
    sums = segments.groupby(sizes, observed=True)[["segments", "segment_mib", "allocated_mib"]].sum()[::-1]
    counts = sums["segments"].astype(int)
    parts.rows(ax, [f"{size}: {count}" for size, count in counts.items()])
    reserved_gib, used_gib = sums["segment_mib"].to_numpy() / 1024, sums["allocated_mib"].to_numpy() / 1024
    parts.bars(ax, reserved_gib, color=canvas.IDLE, label="reserved, not in use")
    parts.bars(ax, used_gib, color=canvas.COMPUTE, label="in use")
    unused, reserved = units.percent(fact(segments, "unused_share")), units.gib(reserved_gib.sum())
    ax.set(title=f"{unused} of {reserved} not in use", xlabel="GiB, at the end of backward", xlim=(0, None))


def projection_chart(
    recorded: pd.DataFrame, here: pd.DataFrame | None = None, published: pd.DataFrame | None = None
) -> Figure:
    """A panel per strategy: the % of one GPU's speed that each GPU keeps, by their number.

    The band is projected from the recorded links: its upper edge keeps α, its lower one lets α grow with the ring. Dots
    are measured, recorded and here; `here` is drawn if alone and at full size. Triangles are published speed-ups.
    """
    if here is not None and (fact(here, "small") or fact(here, "source") == fact(recorded, "source")):
        here = None
    names = [name for name in STRATEGY_LABELS if name in set(recorded["strategy"])]
    figure, shown = parts.panel_each(names, height=3.9, width=11.5, sharey=True)
    for ax, name in shown:
        rows = recorded[recorded["strategy"] == name]
        edges = 100 * rows["efficiency"], 100 * rows["efficiency_at_fixed_alpha"]
        ax.fill_between(rows["gpus"], *edges, color=canvas.IDLE, label="projected")
        ax.plot(rows["gpus"], edges[0], color=canvas.THEORY, lw=1, label="… if α grows")
        _measured(ax, rows, canvas.RECORDED, "recorded run", zorder=3)
        if here is not None:
            of_strategy = here[here["strategy"] == name].dropna(subset="error")
            look = {"color": canvas.THEORY, "ms": 16, "mew": 2, "label": "projected here"}
            ax.plot(of_strategy["gpus"], 100 * of_strategy["efficiency"], "_", **look)
            _measured(ax, of_strategy, canvas.MEASURED, "this run", zorder=4)
        if published is not None and name in _PUBLISHED:
            kept = 100 * published[_PUBLISHED[name]] / published["gpus"]
            ax.plot(published["gpus"], kept, "^", color=canvas.PUBLISHED, label="published")
        parts.knob_axis(ax, recorded["gpus"], "GPUs", most=6)
        if recorded["gpus"].max() > PER_NODE:  # where a node ends
            ax.axvline(PER_NODE * 2**0.5, color=canvas.QUIET, ls=":", lw=1.2)
        ax.set_title(f"{STRATEGY_LABELS[name]}, % kept")
        ax.grid(axis="y")
    shown[0][0].set(ylabel="% of one GPU's speed, per GPU", ylim=(None, 101))
    note = f"{fact(recorded, 'micro_batch')} sequences per GPU · "
    return parts.close(figure, recorded, here, published, note=note)


def _measured(ax: Axes, rows: pd.DataFrame, color: str, label: str, *, zorder: int) -> None:
    kept = 100 * rows["efficiency"] / (1 + rows["error"])
    ax.plot(rows["gpus"], kept, "o", color=color, label=label, zorder=zorder)
