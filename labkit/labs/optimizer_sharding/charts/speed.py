"""Updates and steps as bars, and our update by the size of its buckets."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas, parts
from labkit.labs.optimizer_sharding.charts.memory import BAR, GAP, KERNELS, grouped_rows
from labkit.provenance import sources, where

SETTINGS = {("adamw", "foreach"): "AdamW", ("adamw", "fused"): "AdamW, fused", ("momentum", "foreach"): "SGD, momentum"}
_REST, _UPDATE = "#C8D8E4", "#4C92C3"  # of a whole step
_LEAST = "#F0E442"
_GB_PER_MIB = 2**20 / 1e9


def steps_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Two panels, a bar per way and optimizer: the update (own elements, what sending adds), and the step around it.

    Strokes are the least that memory's and the links' rates allow, one after the other. `guess` (ms, a number or a
    Prediction) is a line in the first panel.
    """
    settings = list(dict.fromkeys(zip(table["optimizer"], table["kernel"], strict=True)))
    ways = list(dict.fromkeys(table["way"]))
    figure, (left, right) = parts.panels(
        2, height=max(2.4, 1.6 + 0.24 * len(settings) * (len(ways) + GAP)), sharey=True
    )
    left.set(title=f"Update. {where(table)}", xlabel="update, ms")
    right.set(title="Whole step", xlabel="step, ms")
    if table.empty:
        for ax in (left, right):
            ax.text(0.5, 0.5, "no setting is complete", ha="center", color=canvas.QUIET, transform=ax.transAxes)
        return canvas.finish(figure, sources(table))
    groups = [settings.index(setting) for setting in zip(table["optimizer"], table["kernel"], strict=True)]
    headings = [SETTINGS[setting] for setting in settings]
    for ax in (left, right):
        places = grouped_rows(ax, headings, ways, groups, [ways.index(way) for way in table["way"]])
    _updates(left, table, places)
    parts.guess_line(left, guess)
    rest = (table["step_ms"] - table["update_ms"]).clip(lower=0)
    right.barh(places, rest, color=_REST, height=BAR, label="forward, backward, average")
    right.barh(places, table["step_ms"] - rest, left=rest, color=_UPDATE, height=BAR, label="update and sending")
    _whiskers(right, table["step_ms"], places, table["spread_step_ms"])
    canvas.shared_legend(figure, (left, right), columns=4)
    return canvas.finish(figure, sources(table))


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


def buckets_chart(table: pd.DataFrame) -> Figure:
    """The update by the size of its buckets, and the part of it that sends nothing; between them, what sending adds."""
    figure, ax = canvas.canvas(height=3.6)
    rows = table.sort_values("bucket_mib")
    sizes = rows["bucket_mib"]
    ax.set(title=where(table), xlabel="MiB in a bucket, at most", ylabel="update, ms", ylim=(0, None))
    if table.empty:
        ax.text(0.5, 0.5, "no size is complete", ha="center", color=canvas.QUIET, transform=ax.transAxes)
        return canvas.finish(figure, sources(table))
    lines = (("update", canvas.INK, "update"), ("local", canvas.COMPUTE, "update of own elements, nothing sent"))
    for part, color, name in lines:
        look = {"color": color, "marker": "o", "capsize": 3, "label": name}
        ax.errorbar(sizes, rows[f"{part}_ms"], yerr=rows[f"spread_{part}_ms"], **look)
    between = {"color": canvas.COMMUNICATE, "alpha": 0.45, "lw": 0, "label": "sending that nothing hides"}
    ax.fill_between(sizes, rows["local_ms"], rows["update_ms"], **between)
    canvas.logarithmic(ax.xaxis)
    ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
    ax.set_ylim(0, None)
    ax.grid(axis="y")
    canvas.legend_above(ax, columns=3)
    return canvas.finish(figure, sources(table))


def report_chart(report: pd.DataFrame, saved: pd.DataFrame, times: pd.DataFrame, guess: Any = None) -> Figure:
    """Above: what sharding saves of the peak, in GB; below: by how many ms a step becomes shorter.

    Theory, the run (`saved` and `times` as of `saving` and `steps`) and the report, each with its uncertainty; `guess`
    (GB, a number or a Prediction) in the upper panel.
    """
    printed, own = report.iloc[0], saved[saved["way"] == "sharded"]
    recorded = where(saved).startswith("Recorded")
    name, color = ("recorded", canvas.RECORDED) if recorded else ("measured", canvas.MEASURED)
    above = [
        ("theory: states", printed["states_gb"], 0, canvas.THEORY),
        ("theory: and temporaries", printed["both_gb"], 0, canvas.THEORY),
        *((f"{name}: {KERNELS[row.kernel]}", row.measured * _GB_PER_MIB, 0, color) for row in own.itertuples()),
        ("published", printed["saving_gb"], printed["high_gb"] - printed["saving_gb"], canvas.PUBLISHED),
    ]
    if (value := getattr(guess, "value", guess)) is not None:
        above.append(("your prediction", value, 0, canvas.PREDICTED))
    below = [
        (f"theory: {kernels}, {way}", printed[f"{kernel}_saved_ms"] - printed[f"{way}_ms"], 0, canvas.THEORY)
        for kernel, kernels in (("update", "many kernels"), ("fused", "one kernel"))
        for way in ("gather", "broadcast")
    ]
    below += [(f"{name}: {KERNELS[kernel]}", *_gained(times, kernel), color) for kernel in own["kernel"]]
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
    known = [row for row in rows if pd.notna(row[1])]
    names, values, spreads, colors = zip(*known, strict=True)
    parts.rows(ax, names)
    spread = [value or float("nan") for value in spreads]
    parts.bars(ax, pd.Series(values), color=list(colors), spread=spread)
    ax.set(title=title, xlabel=label)
    ax.axvline(0, color=canvas.INK, lw=0.8)
