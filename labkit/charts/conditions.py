"""A run's conditions over time: what its GPUs, or its host, did while the points were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas
from labkit.node.conditions import Conditions
from labkit.story.words import bullets

if TYPE_CHECKING:
    from IPython.display import Markdown
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OF_GPUS = {
    "utilisation_percent": ("GPU utilisation", "%"),
    "sm_clock_mhz": ("SM clock", "MHz"),
    "power_w": ("power", "W"),
}
OF_HOST = {
    "cpu_percent": ("load of all cores", "%"),
    "cpu_pressure_percent": ("time in which a process waited for a core", "%"),
    "memory_available_gib": ("memory available", "GiB"),
}
ALWAYS_FROM_ZERO = ("power_w", *OF_HOST)
PERCENT = 122.0  # end of an axis of percentages: the points' numbers stand above a line at 100 %
NO_LOOKS = "No conditions are drawn: this run's folder holds no looks at its GPUs or its host"
MOST_NUMBERS = 16  # of points that are written above their spans


def conditions_chart(conditions: Conditions) -> Figure | Markdown:
    """The GPUs' utilisation, clock and power over the run, one line per GPU; without GPUs, the load of the host.

    Grey spans are the run's points. Throttled looks are crosses on the clock's line, which the legend explains; the
    dashed line is the power cap. A panel whose column was not measured says so. Where nothing was measured, a sentence
    says so instead of the chart. Call it with `run.conditions()`.
    """
    table = conditions.table()
    if not table[[*OF_GPUS, *OF_HOST]].notna().any(axis=None):
        return bullets(f"{conditions.missing or NO_LOOKS}.")
    on_gpus = bool(table["gpu"].notna().any())
    shown_as = OF_GPUS | OF_HOST
    columns = tuple(OF_GPUS) if on_gpus else tuple(name for name in OF_HOST if table[name].notna().any())
    figure, grid = canvas.canvas(1, len(columns), height=1.1 + 1.35 * len(columns), sharex=True, squeeze=False)
    axes = list(grid[:, 0])
    for ax, column in zip(axes, columns, strict=True):
        title, unit = shown_as[column]
        ax.set(title=title if ax is not axes[0] else f"{conditions.run}: {title}", ylabel=unit)
        ax.grid(axis="y")
        _lines(ax, table, column)
        _set_limits(ax, column)
        if not table[column].notna().any():
            why = "not measured: this machine does not count it"
            ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", va="center", color=canvas.QUIET, fontsize=8)
            ax.set_yticks([])
            ax.set_xticks([])
    if on_gpus:
        _mark_throttling(axes[columns.index("sm_clock_mhz")], table)
        _power_cap(axes[columns.index("power_w")], conditions)
    _points(axes, conditions)
    axes[-1].set(xlabel="seconds since the first look", xlim=(0, _end_s(table, conditions)))
    if any(ax.get_legend_handles_labels()[1] for ax in axes):
        canvas.shared_legend(figure, axes, columns=7)
    return canvas.finish(figure, conditions.source)


def _lines(ax: Axes, table: pd.DataFrame, column: str) -> None:
    rows = table[table[column].notna()]
    if column in OF_HOST:
        ax.plot(rows["at_s"], rows[column], color=canvas.MEASURED, marker=".", markersize=3, lw=1.2)
        return
    for index, (gpu, of_gpu) in enumerate(rows.groupby("gpu")):
        style: dict[str, Any] = {"color": canvas.SERIES[index % len(canvas.SERIES)], "marker": ".", "markersize": 3}
        # A gap stays a gap: a GPU that did not answer is not joined over the time in which it was silent.
        values = of_gpu.set_index("at_s")[column].reindex(table["at_s"].drop_duplicates())
        ax.plot(values.index, values, lw=1.2, label=f"GPU {int(str(gpu).partition('.')[0])}", **style)


def _set_limits(ax: Axes, column: str) -> None:
    ax.margins(y=0.15)
    if column.endswith("_percent"):
        ax.set_ylim(0, PERCENT)
        ax.set_yticks([0, 50, 100])
    elif column in ALWAYS_FROM_ZERO:
        ax.set_ylim(0, 1.12 * max(ax.get_ylim()[1], 1e-9))


def _mark_throttling(ax: Axes, table: pd.DataFrame) -> None:
    rows = table[table["throttle_reasons"].map(bool, na_action="ignore").eq(True) & table["sm_clock_mhz"].notna()]
    if len(rows):
        reasons = ", ".join(sorted({reason for names in rows["throttle_reasons"] for reason in names}))
        style = {"ls": "", "marker": "x", "color": canvas.INK, "markersize": 5, "label": f"throttled: {reasons}"}
        ax.plot(rows["at_s"], rows["sm_clock_mhz"], **style)


def _power_cap(ax: Axes, conditions: Conditions) -> None:
    caps = sorted({gpu.power_limit_w for gpu in conditions.before.gpus if gpu.power_limit_w is not None})
    for index, cap in enumerate(caps):
        ax.axhline(cap, color=canvas.QUIET, ls=(0, (4, 3)), lw=1, label=None if index else "power cap")
    if caps:
        ax.set_ylim(0, 1.12 * max(caps[-1], ax.get_ylim()[1] / 1.12))


def _points(axes: list[Axes], conditions: Conditions) -> None:
    """Shade the spans of the points, and number them where there is room."""
    spans = [point for point in conditions.points if "began_s" in point and "ended_s" in point]
    style = {"facecolor": canvas.HAIRLINE, "edgecolor": "white", "alpha": 0.55, "lw": 1, "zorder": 0}
    for ax in axes:
        for index, point in enumerate(spans):
            ax.axvspan(point["began_s"], point["ended_s"], label=None if index else "a point, with its number", **style)
    for point in spans if len(spans) <= MOST_NUMBERS else ():
        middle = (point["began_s"] + point["ended_s"]) / 2
        place = {"xytext": (0, -3), "textcoords": "offset points", "ha": "center", "va": "top"}
        where = axes[0].get_xaxis_transform()
        axes[0].annotate(f"{point['point']}", (middle, 1), xycoords=where, fontsize=8, color=canvas.QUIET, **place)


def _end_s(table: pd.DataFrame, conditions: Conditions) -> float:
    ends = [conditions.seconds or 0.0, float(table["at_s"].max()) if len(table) else 0.0]
    return max(*ends, 0.1)
