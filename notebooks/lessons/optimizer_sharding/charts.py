"""Tables of lab 11 → figures: memory, balance, stages, times, buckets, and a report beside our run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import fact, sources, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RULE_COLORS = {"by number": canvas.SERIES[5], "whole parameters": canvas.SERIES[1], "by elements": canvas.SERIES[2]}
STAGES = {"ddp": "DDP", "ours": "ours", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
_STAGE_COLORS = dict(zip(STAGES, (canvas.SERIES[number] for number in (0, 5, 2, 3, 1)), strict=True))
_NAMES = {
    "unsharded": "unsharded",
    "zero_redundancy": "torch's ZeRO",
    "zero_buckets": "torch's, in buckets",
    "sharded": "ours",
}
# The table's items → the names that the whole workbook's ledgers use.
ITEMS = {item: item for item in ("parameters", "gradients", "states", "activations", "temporary")} | {
    "states": "optimizer"
}
MOMENTS = {"built": "built", "before update": "up to the update", "after update": "in the update"}
KERNELS = {"foreach": "many kernels (foreach)", "fused": "one kernel (fused)"}
BAR, GAP = 0.74, 1.7  # a bar's height, and the room between two groups, in bars


def balance_chart(table: pd.DataFrame, ranks: tuple[int, ...] = (2, 4, 8)) -> Figure:
    """The fullest rank's elements over an equal part, by model and rule; a panel per number of ranks."""
    models = list(dict.fromkeys(table["model"]))
    figure, axes = parts.panels(len(ranks), len(models), row_height=0.55, sharey=True)
    for ax, count in zip(axes, ranks, strict=True):
        for number, (rule, color) in enumerate(_RULE_COLORS.items()):
            shown = table[(table["ranks"] == count) & (table["rule"] == rule)].set_index("model").loc[models]
            places = [place + 0.26 * (number - 1) for place in range(len(models))]
            ax.barh(places, 1 + shown["excess"], 0.24, color=color, label=rule)
        ax.axvline(1.05, color=canvas.INK, ls=(0, (2, 2)), lw=1, label="5 % more")
        ax.set(title=f"{count} ranks", xlabel="fullest rank, × equal parts", xlim=(0, None))
        parts.rows(ax, models)
    canvas.legend_above(axes[0], columns=4)
    return canvas.finish(figure, sources(table))


def stages_chart(held: pd.DataFrame, sent: pd.DataFrame, measured: pd.DataFrame | None = None) -> Figure:
    """Left what a rank holds by the number of ranks, a line per stage; right what it sends per step.

    The right panel's unit is all parameters' bytes. `measured`: a memory table; what its ranks' tensors hold after the
    update is marked.
    """
    figure, (left, right) = canvas.canvas(2, height=3.9, width_ratios=(3, 2))
    for name, label in STAGES.items():
        rows = held[held["stage"] == name]
        dashed = (0, (4, 3)) if name == "zero1" else "-"  # as high as ours
        left.plot(rows["ranks"], rows["held_gib"], color=_STAGE_COLORS[name], ls=dashed, marker="o", ms=4, label=label)
    if measured is not None:
        last = measured[(measured["moment"] == "after update") & (measured["step"] == 1)].drop_duplicates("way")
        gib = (last["parameters"] + last["gradients"] + last["counted_states"]) / 1024
        marked = gib[last["way"].isin(("unsharded", "sharded"))]
        ranks = [fact(measured, "ranks")] * len(marked)
        left.scatter(ranks, marked, marker="D", s=44, color=canvas.INK, zorder=4, label="counted in tensors")
    canvas.logarithmic(left.xaxis)
    counts = sorted(set(held["ranks"]))
    left.set_xticks(counts, [str(count) for count in counts])
    left.set(title="Parameters, gradients and states", xlabel="ranks", ylabel="GiB per rank", ylim=(0, None))
    left.grid(axis="y")
    parts.rows(right, [STAGES[name] for name in sent["stage"]])
    parts.bars(right, sent["volume"], color=[_STAGE_COLORS[name] for name in sent["stage"]])
    right.set(title="Sent through a link per step", xlabel="parameters' bytes, × (N − 1)/N")
    canvas.legend_above(left, columns=6)
    return canvas.finish(figure, sources(held))


def memory_chart(*tables: pd.DataFrame) -> Figure:
    """Stacked bars by item of the second step's three moments, a bar per way; diamonds where the allocator saw peaks.

    A row of panels per run, a panel per kernel.
    """
    kernels = list(dict.fromkeys(kernel for table in tables for kernel in table["kernel"]))
    ways = list(dict.fromkeys(way for table in tables for way in table["way"]))
    height = len(tables) * (1.3 + 0.25 * 3 * (len(ways) + GAP))
    figure, grid = canvas.canvas(len(kernels), len(tables), height=height, squeeze=False, sharey="row", sharex="row")
    for axes, table in zip(grid, tables, strict=True):
        shown = table[(table["step"] == table["step"].max()) | (table["moment"] == "built")]
        scale, unit = ledgers.memory_unit(shown["predicted"].max())
        for ax, kernel in zip(axes, kernels, strict=True):
            rows = shown[shown["kernel"] == kernel]
            groups = [list(MOMENTS).index(moment) for moment in rows["moment"]]
            places = grouped_rows(ax, list(MOMENTS.values()), ways, groups, [ways.index(way) for way in rows["way"]])
            sizes = {name: rows[item].to_numpy() / scale for item, name in ITEMS.items()}
            ledgers.held_bars(ax, places, sizes, height=BAR)
            ledgers.peak_marks(ax, places, rows["peak"] / scale, size=26)
            ax.set(title=f"{where(table)}: {KERNELS[kernel]}", xlabel=f"most memory per rank, {unit}")
    canvas.shared_legend(figure, grid.flat, columns=7)
    return canvas.finish(figure, sources(*tables))


def grouped_rows(
    ax: Axes, headings: Sequence[str], ways: Sequence[str], groups: Sequence[int], ways_at: Sequence[int]
) -> list[float]:
    """Make the axes a row per way under each heading; return the places of bars by group and way, both as numbers."""
    step = len(ways) + GAP
    rows = [(number * step + row, _NAMES[way]) for number in range(len(headings)) for row, way in enumerate(ways)]
    ax.set_yticks([place for place, _ in rows], [name for _, name in rows], fontsize=9)
    ax.set_ylim(rows[-1][0] + 0.6, -1.6)
    ax.grid(axis="x")
    for number, heading in enumerate(headings):
        ax.text(0, number * step - 0.75, heading, fontsize=9, style="italic", color=canvas.QUIET)
    return [number * step + row for number, row in zip(groups, ways_at, strict=True)]


SETTINGS = {("adamw", "foreach"): "AdamW", ("adamw", "fused"): "AdamW, fused", ("momentum", "foreach"): "SGD, momentum"}
_REST, _UPDATE = "#C8D8E4", "#4C92C3"  # of a whole step
_LEAST = "#F0E442"
_GB_PER_MIB = 2**20 / 1e9


def steps_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Two panels per run, a bar per way and optimizer: the update (own elements, what sending adds), the whole step.

    Strokes are the least time that memory's and the links' rates allow, one after the other. `guess` (ms, a number or a
    Prediction) is a line in the panels of updates.
    """
    heights = [max(2.0, 1.2 + 0.24 * len(_settings(table)) * (table["way"].nunique() + GAP)) for table in tables]
    figure, grid = canvas.canvas(
        2, len(tables), height=0.4 + sum(heights), squeeze=False, sharey="row", height_ratios=heights
    )
    for (left, right), table in zip(grid, tables, strict=True):
        left.set(title=f"Update. {where(table)}", xlabel="update, ms")
        right.set(title="Whole step", xlabel="step, ms")
        if table.empty:
            for ax in (left, right):
                ax.text(0.5, 0.5, "no setting is complete", ha="center", color=canvas.QUIET, transform=ax.transAxes)
            continue
        _updates_and_steps(left, right, table)
        parts.guess_line(left, guess)
    canvas.shared_legend(figure, grid.flat, columns=4)
    return canvas.finish(figure, sources(*tables))


def _settings(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(table["optimizer"], table["kernel"], strict=True)))


def _updates_and_steps(left: Axes, right: Axes, table: pd.DataFrame) -> None:
    settings, ways = _settings(table), list(dict.fromkeys(table["way"]))
    groups = [settings.index(setting) for setting in zip(table["optimizer"], table["kernel"], strict=True)]
    headings = [SETTINGS[setting] for setting in settings]
    for ax in (left, right):
        places = grouped_rows(ax, headings, ways, groups, [ways.index(way) for way in table["way"]])
    _updates(left, table, places)
    rest_ms = (table["step_ms"] - table["update_ms"]).clip(lower=0)
    right.barh(places, rest_ms, color=_REST, height=BAR, label="forward, backward, average")
    right.barh(places, table["step_ms"] - rest_ms, left=rest_ms, color=_UPDATE, height=BAR, label="update and sending")
    _whiskers(right, table["step_ms"], places, table["spread_step_ms"])


def _updates(ax: Axes, table: pd.DataFrame, places: list[float]) -> None:
    """Draw the update of own elements, what sending adds to it, and the least of both."""
    local = table["local_ms"].clip(upper=table["update_ms"])
    ax.barh(places, local, color=canvas.COMPUTE, height=BAR, label="update of own elements")
    exposed: dict[str, Any] = {"color": canvas.COMMUNICATE, "label": "sending that nothing hides"}
    ax.barh(places, table["update_ms"] - local, left=local, height=BAR, **exposed)
    _whiskers(ax, table["update_ms"], places, table["spread_update_ms"])
    if table["least_local_ms"].notna().any():
        for name, sent, color in (("least to update", 0, _LEAST), ("least, sending after it", 1, canvas.INK)):
            least = table["least_local_ms"] + sent * table["least_sent_ms"]
            ax.scatter(least, places, marker="|", s=110, zorder=3, color=color, lw=2.2, label=name)


def _whiskers(ax: Axes, ends: pd.Series, places: list[float], spread: pd.Series) -> None:
    ax.errorbar(ends, places, xerr=spread, ls="", color=canvas.INK, capsize=2, lw=1)


def buckets_chart(*tables: pd.DataFrame) -> Figure:
    """The update by the size of its buckets, and its part that sends nothing; between them, what sending adds."""
    figure, axes = parts.panels(len(tables), height=3.6)
    for ax, table in zip(axes, tables, strict=True):
        rows = table.sort_values("bucket_mib")
        sizes = rows["bucket_mib"]
        ax.set(title=where(table), xlabel="MiB in a bucket, at most", ylabel="update, ms")
        if table.empty:
            ax.text(0.5, 0.5, "no size is complete", ha="center", color=canvas.QUIET, transform=ax.transAxes)
            continue
        for part, color, name in (("update", canvas.INK, "update"), ("local", canvas.COMPUTE, "without sending")):
            look = {"color": color, "marker": "o", "capsize": 3, "label": name}
            ax.errorbar(sizes, rows[f"{part}_ms"], yerr=rows[f"spread_{part}_ms"], **look)
        between = {"color": canvas.COMMUNICATE, "alpha": 0.45, "lw": 0, "label": "sending that nothing hides"}
        ax.fill_between(sizes, rows["local_ms"], rows["update_ms"], **between)
        canvas.logarithmic(ax.xaxis)
        ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
        ax.set_ylim(0, None)
        ax.grid(axis="y")
    canvas.shared_legend(figure, axes, columns=3)
    return canvas.finish(figure, sources(*tables))


def report_chart(report: pd.DataFrame, saved: pd.DataFrame, times: pd.DataFrame, guess: Any = None) -> Figure:
    """Above: what sharding saves of the peak, in GB; below: by how many ms a step becomes shorter.

    Theory, the run (`saved` and `times` as of `saving` and `steps`) and the report, each with its uncertainty; `guess`
    (GB, a number or a Prediction) in the upper panel.
    """
    printed, sharded = report.iloc[0], saved[saved["way"] == "sharded"]
    recorded = where(saved).startswith("Recorded")
    name, color = ("recorded", canvas.RECORDED) if recorded else ("measured", canvas.MEASURED)
    above = [
        ("theory: states", printed["states_gb"], 0, canvas.THEORY),
        ("theory: and temporaries", printed["both_gb"], 0, canvas.THEORY),
        *((f"{name}: {KERNELS[row.kernel]}", row.measured * _GB_PER_MIB, 0, color) for row in sharded.itertuples()),
        ("published", printed["saving_gb"], printed["high_gb"] - printed["saving_gb"], canvas.PUBLISHED),
    ]
    if (value := getattr(guess, "value", guess)) is not None:
        above.append(("your prediction", value, 0, canvas.PREDICTED))
    below = [
        (f"theory: {kernels}, {way}", printed[f"{kernel}_saved_ms"] - printed[f"{way}_ms"], 0, canvas.THEORY)
        for kernel, kernels in (("update", "many kernels"), ("fused", "one kernel"))
        for way in ("gather", "broadcast")
    ]
    below += [(f"{name}: {KERNELS[kernel]}", *_gained(times, kernel), color) for kernel in sharded["kernel"]]
    below.append(("published", printed["faster_ms"], 1.0, canvas.PUBLISHED))
    heights = (len(above), len(below))
    figure, axes = canvas.canvas(rows=2, height=2.2 + 0.29 * sum(heights), height_ratios=heights)
    _sourced_bars(axes[0], above, "Peak memory saved", "GB (10⁹ bytes) less than unsharded")
    _sourced_bars(axes[1], below, "Time of a step saved", "ms per step less than unsharded")
    return canvas.finish(figure, sources(report, saved, times))


def _gained(times: pd.DataFrame, kernel: str) -> tuple[float, float]:
    """Return by how many ms AdamW's step is shorter with our sharding, and the spread of that."""
    rows = times[(times["optimizer"] == "adamw") & (times["kernel"] == kernel)].set_index("way")
    if not {"unsharded", "sharded"} <= set(rows.index):
        return float("nan"), 0.0
    spread = rows["spread_step_ms"].reindex(["unsharded", "sharded"]).sum()
    return rows["step_ms"]["unsharded"] - rows["step_ms"]["sharded"], spread


def _sourced_bars(ax: Axes, rows: list[tuple[str, float, float, str]], title: str, label: str) -> None:
    """Draw a bar per (name, value, spread, colour), without those that have no value."""
    rows_with_value = [row for row in rows if pd.notna(row[1])]
    names, values, spreads, colors = zip(*rows_with_value, strict=True)
    parts.rows(ax, names)
    spread = [value or float("nan") for value in spreads]
    parts.bars(ax, pd.Series(values), color=list(colors), spread=spread)
    ax.set(title=title, xlabel=label)
    ax.axvline(0, color=canvas.INK, lw=0.8)
