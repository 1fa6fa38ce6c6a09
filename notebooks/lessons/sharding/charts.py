"""Scaling, batches until they do not fit, projections, and the memory of a step, moment by moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.charts.allocations import memory_layers
from labkit.charts.ink import ink_on
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import setting_label
from labkit.charts.profile import trace_chart as trace_chart
from labkit.charts.waterfall import waterfall_chart as waterfall_chart
from labkit.provenance import fact, sources, where
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOADS = {"large": canvas.SERIES[0], "shared out": canvas.SERIES[4]}
_STRATEGIES = {
    "ddp": canvas.SERIES[0],
    "fsdp_grad": canvas.SERIES[1],
    "fsdp_full": canvas.SERIES[2],
    "fsdp_root": canvas.SERIES[3],
}
_CURVES = [*canvas.SERIES, canvas.QUIET, canvas.INK, canvas.PUBLISHED]
_PUBLISHED = {"ddp_speedup": ("^", "report, DDP"), "fsdp_speedup": ("v", "report, FSDP")}


def scaling_chart(*tables: pd.DataFrame) -> Figure:
    """Efficiency beside one GPU, a bar per strategy and number of GPUs, a colour per load; a panel per run."""
    figure, axes = parts.panels(len(tables), height=4.0)
    for ax, every in zip(axes, tables, strict=True):
        table = every[every["strategy"] != "single"]
        settings = list(dict.fromkeys(zip(table["ranks"], table["strategy"], strict=True)))
        parts.rows(ax, [f"{STRATEGY_LABELS[name]}\n{count} ranks" for count, name in settings], fontsize=8.5)
        for load, color in _LOADS.items():
            rows = table[table["load"] == load].set_index(["ranks", "strategy"]).reindex(settings)
            at = [place + (-0.2 if load == "large" else 0.2) for place in range(len(settings))]
            label = f"{load} batch" if load == "large" else "the report's batch, shared out"
            whiskers = {"xerr": rows["spread_efficiency"], "capsize": 2, "ecolor": canvas.INK}
            ax.barh(at, rows["efficiency"], 0.38, color=color, label=label, **whiskers)
            for place, rate in zip(at, rows["tokens_per_s"], strict=True):
                if pd.notna(rate):
                    room = {"facecolor": color, "edgecolor": "none", "pad": 0.5}  # a whisker may begin there
                    look = {"va": "center", "fontsize": 7.5, "color": ink_on(color), "bbox": room, "zorder": 4}
                    ax.text(0.02, place, f"{units.number(rate)} tokens/s", **look)
        ax.axvline(0.95, color=canvas.PREDICTED, ls=(0, (4, 2)), lw=1.3, label="target 0.95")
        ax.set(title=where(every), xlabel="rate per GPU: times one GPU's rate")
    longest = max((table["efficiency"] + table["spread_efficiency"].fillna(0.0)).max() for table in tables)
    for ax in axes:
        ax.set_xlim(0, max(1.1, 1.05 * longest))
    canvas.legend_above(axes[0])
    return canvas.finish(figure, sources(*tables))


def batches_chart(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Tokens per second, and memory beside its ledger, against the micro-batch; a cross where it did not fit."""
    figure, (left, right) = parts.panels(2, height=3.8)
    fits = table[table["tokens_per_s"].notna()]
    style = {"marker": "o", "capsize": 3, "color": canvas.MEASURED, "label": "measured"}
    left.errorbar(fits["micro_batch"], fits["tokens_per_s"], yerr=fits["spread_tokens_per_s"], **style)
    scale, unit = ledgers.memory_unit(table["predicted_mib"].max(), 4096)
    right.plot(table["micro_batch"], table["predicted_mib"] / scale, color=canvas.THEORY, marker="|", label="ledger")
    right.plot(table["micro_batch"], table["peak_mib"] / scale, "o", color=canvas.MEASURED)
    for row in table[table["tokens_per_s"].isna()].itertuples():
        at = (row.micro_batch, row.predicted_mib / scale)
        right.plot(*at, "X", ms=10, color=canvas.SERIES[5])
        parts.beside(right, *at, row.status, ha="right", xytext=(-8, 0))
    if published is not None:
        known = published[published["tokens_per_second"] != "OOM"].astype({"tokens_per_second": float})
        left.plot(known["batch"], known["tokens_per_second"], "^", color=canvas.PUBLISHED, label="published (H100)")
    for ax, title, label in ((left, "Rate", "tokens/second"), (right, "Peak memory", f"{unit} on one GPU")):
        ax.set_xscale("log", base=2)
        ax.set_xticks(table["micro_batch"], table["micro_batch"])
        ax.set(title=f"{title}: {where(table)}", xlabel="sequences at once (log)", ylabel=label)
        ax.minorticks_off()
        ax.yaxis.set_major_formatter(lambda value, _: units.number(value, 6).partition(".")[0] if value else "0")
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
        ax.grid(axis="y")
    left.plot([], [], color=canvas.THEORY, marker="|", label="ledger")
    canvas.legend_above(left)
    return canvas.finish(figure, sources(table, published))


def projection_chart(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """How much of a single GPU's speed each GPU keeps, by their number: lines projected, dots measured.

    Dashed is what would be if α did not grow with the ring. Triangles are published speed-ups over their number of
    GPUs; the dotted line is where a node ends.
    """
    from matplotlib.ticker import PercentFormatter

    figure, ax = canvas.canvas(height=4.2)
    for place, (strategy, rows) in enumerate(table.groupby("strategy", sort=False)):
        color, dodge = _STRATEGIES[strategy], 2 ** (0.06 * (place - 1.5))  # so that no dot hides another
        ax.plot(rows["gpus"], rows["efficiency"], color=color, lw=1.5, label=STRATEGY_LABELS[strategy])
        ax.plot(rows["gpus"], rows["efficiency_at_fixed_alpha"], color=color, lw=1, ls=(0, (4, 2)))
        ax.scatter(dodge * rows["gpus"], rows["efficiency"] / (1 + rows["error"]), color=color, s=36, zorder=3)
    ax.plot([], [], color=canvas.QUIET, lw=1, ls=(0, (4, 2)), label="α fixed")
    if table["error"].notna().any():
        ax.scatter([], [], color=canvas.QUIET, s=36, label="measured")
    if published is not None:
        for column, (marker, name) in _PUBLISHED.items():
            style = {"color": canvas.PUBLISHED, "marker": marker, "s": 36, "label": name, "zorder": 2}
            ax.scatter(published["gpus"], published[column] / published["gpus"], **style)
    _gpus_axis(ax, sorted(set(table["gpus"])), fact(table, "per_node"))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set(xlabel="GPUs, one micro-batch each (log)", ylabel="% of one GPU's speed, per GPU")
    ax.set_title(f"Micro-batch {fact(table, 'micro_batch')}: lines projected from links and one GPU")
    ax.grid(axis="y")
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, sources(table, published))


def _gpus_axis(ax: Axes, gpus: list[int], per_node: int) -> None:
    """Mark each number of GPUs, and where a node ends: between it and twice as many, so that no dot is hidden."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(gpus), minor_locator=NullLocator(), major_formatter=ScalarFormatter())
    if per_node < max(gpus):
        end = per_node * 2**0.5
        ax.axvline(end, color=canvas.QUIET, ls=":", lw=1.2)
        style = {"fontsize": 9, "color": canvas.QUIET, "transform": ax.get_xaxis_transform()}
        ax.text(end, 0.03, "one node ", ha="right", **style)
        ax.text(end, 0.03, " several nodes", ha="left", **style)


def memory_chart(timeline: pd.DataFrame, segments: pd.DataFrame) -> Figure:
    """Memory in use by kind, moment by moment; beside it the allocator's segments at the end of backward.

    A step of the stairs is a segment, the largest first; its blue part is in use.
    """
    figure, (left, right) = parts.panels(2, height=4.4, gridspec_kw={"width_ratios": (3, 2)})
    if timeline.empty or segments.empty:
        for ax in (left, right):
            ax.set(title="Memory", xlabel="ms", ylabel="GiB", xticks=[], yticks=[])
            ax.text(0.5, 0.5, "this run had no GPU memory to measure", ha="center", transform=ax.transAxes)
        return canvas.finish(figure, sources(timeline, segments))
    memory_layers(left, timeline)
    most = units.gib(timeline["allocated_mib"].max() / 1024)
    left.set(xlabel="ms", ylabel="GiB", title=f"{setting_label(timeline)}: at most {most}")
    bars = segments[segments["segments"] == 1]
    edges = [place - 0.5 for place in range(len(bars) + 1)]
    right.stairs(bars["segment_mib"], edges, fill=True, color=canvas.IDLE, label="reserved, not in use")
    right.stairs(bars["allocated_mib"], edges, fill=True, color=canvas.COMPUTE, label="in use")
    unused, reserved = units.percent(fact(segments, "unused_share")), units.gib(segments["segment_mib"].sum() / 1024)
    smaller = int(segments["segments"].sum()) - len(bars)
    more = f"\n({smaller} smaller ones are not drawn)" if smaller else ""
    right.set(title=f"{unused} of {reserved} not in use", ylabel="MiB", xlabel=f"segments, largest first{more}")
    right.set(xlim=(-0.8, len(bars) - 0.2), xticks=[])
    right.grid(axis="y")
    canvas.shared_legend(figure, (left, right), columns=4)
    return canvas.finish(figure, sources(timeline, segments))


def losses_chart(losses: pd.DataFrame, options: pd.DataFrame) -> Figure:
    """The loss of every strategy and option by step; beside it their rates, and their peaks (or activations)."""
    from matplotlib.ticker import MaxNLocator

    figure, (left, middle, right) = parts.panels(3, height=5.2, gridspec_kw={"width_ratios": (5, 4, 4)})
    names = [
        f"{STRATEGY_LABELS[row.strategy]}{f',{chr(10)}{row.option}' if row.option else ''}"
        for row in options.itertuples()
    ]
    for place, (name, row) in enumerate(zip(names, options.itertuples(), strict=True)):
        one = losses[(losses["strategy"] == row.strategy) & (losses["option"] == row.option)]
        style = {"lw": 6 - 0.6 * place, "alpha": 0.9, "color": _CURVES[place % len(_CURVES)]}
        left.plot(one["iteration"], one["loss"], label=name.replace("\n", " "), **style)
    left.set(title=where(losses), xlabel="step", ylabel="mean loss of all samples")
    left.grid(axis="y")
    memory, what = ("peak_mib", "peak") if options["peak_mib"].notna().any() else ("activations_mib", "activations")
    scale, unit = ledgers.memory_unit(options[memory].max())
    for ax, values, title in (
        (middle, options["tokens_per_s"], "tokens/second"),
        (right, options[memory] / scale, f"{what}, {unit}"),
    ):
        parts.rows(ax, names if ax is middle else [""] * len(names), fontsize=8)
        ax.barh(range(len(names)), values, parts.BAR, color=[_CURVES[i % len(_CURVES)] for i in range(len(names))])
        for place, value in enumerate(values):
            parts.beside(ax, value, place, units.number(value), fontsize=8)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.xaxis.set_major_formatter(lambda value, _: units.count(value))
        ax.set(xlabel=title, title=title.partition(",")[0].capitalize(), xlim=(0, 1.35 * values.max()))
    canvas.legend_above(left, columns=4)
    return canvas.finish(figure, sources(losses))
