"""Steps of lab 06 → figures: iterations, first calls by kind, phases, modes, launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.benchmarking.theory import KINDS, NAMES, PRECISION_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PHASES = {"forward": canvas.COMPUTE, "backward": "#6FA8D0", "optimizer": canvas.SERIES[2]}
_MODES = {
    "eager": canvas.SERIES[6],
    "graph": canvas.SERIES[1],
    "compiled": canvas.SERIES[2],
    "compiled_graph": canvas.SERIES[3],
}
_KINDS = dict(
    zip(KINDS, ("#F0E442", "#D55E00", "#E69F00", "#D9D9D9", "#009E73", "#CC79A7", "#999999", "#0072B2"), strict=True)
)
_HOST, _GPU, _MODEL = canvas.SERIES[2], canvas.COMPUTE, canvas.THEORY


def iterations_chart(*tables: pd.DataFrame) -> Figure:
    """Every iteration's ms by size, the first one on the left; a panel per run, warm-ups hollow."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = parts.panels(len(tables), height=4.0)
    for ax, table in zip(axes, tables, strict=True):
        for color, (model, rows) in zip(canvas.SERIES, table.groupby("model", sort=False), strict=False):
            rows = rows.sort_values("iteration")
            ax.plot(rows["iteration"], rows["ms"], color=color, lw=1.2, label=model)
            for hollow, own in rows.groupby(rows["warm_up"].astype(bool)):
                ax.scatter(
                    own["iteration"], own["ms"], s=24, edgecolor=color, color="white" if hollow else color, zorder=3
                )
        canvas.logarithmic(ax.yaxis)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(
            title=where(table), xlabel="iteration (hollow: a warm-up)", ylabel=f"ms per {NAMES[fact(table, 'phase')]}"
        )
        ax.grid(axis="y")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, sources(*tables))


def first_calls_chart(*tables: pd.DataFrame) -> Figure:
    """The host's time in each of the first steps, by what it did; a panel per run."""
    figure, axes = parts.panels(len(tables), rows=max(table["iteration"].nunique() for table in tables))
    for ax, table in zip(axes, tables, strict=True):
        wide = table.pivot_table(index="iteration", columns="kind", values="ms", aggfunc="sum").fillna(0.0)
        parts.rows(ax, [f"iteration {number}" for number in wide.index])
        end: Any = 0.0
        for kind in (kind for kind in KINDS if kind in wide):
            end = parts.bars(ax, wide[kind], start=end, color=_KINDS[kind], label=kind)
        for place, total in enumerate(end):
            parts.beside(ax, total, place, units.seconds(total / 1e3), fontsize=8)
        ax.set(title=where(table), xlabel="ms of the host")
        ax.set_xlim(0, 1.25 * end.max())
    canvas.shared_legend(figure, axes, columns=4)
    return canvas.finish(figure, sources(*tables))


def phases_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Forward, backward and optimizer of an eager step, a bar per size and precision; a panel per run.

    Backward is forward + backward less forward, the optimizer the step less both. Triangles: a report's forward, and
    its forward and backward together, in float32 on an H100, on the last panel, if that is of full size.
    """
    if fact(tables[-1], "small"):
        published = None
    wide = [_phases(table) for table in tables]
    figure, axes = parts.panels(len(tables), rows=max(map(len, wide)), row_height=0.3)
    for ax, table, rows in zip(axes, tables, wide, strict=True):
        parts.rows(ax, [f"{model}, {PRECISION_NAMES[precision]}" for model, precision in rows.index], fontsize=8)
        end: Any = 0.0
        for part, color in _PHASES.items():
            end = parts.bars(ax, rows[part], start=end, color=color, label=part)
        least = rows["least"]
        if least.notna().any():
            places = range(len(least))
            ax.scatter(least, places, marker="|", s=130, color=canvas.THEORY, label="least time of its FLOP", zorder=3)
        if ax is axes[-1] and published is not None:
            _published(ax, rows, published)
        ax.set(title=where(table), xlabel="ms per step, eager")
        ax.set_xlim(0, None)
    canvas.shared_legend(figure, axes[::-1], columns=3)
    return canvas.finish(figure, sources(*tables, published))


def _phases(table: pd.DataFrame) -> pd.DataFrame:
    eager = table[table["mode"] == "eager"]
    wide = eager.pivot_table(index=["model", "precision"], columns="phase", values="ms", aggfunc="first")
    order = list(dict.fromkeys(zip(eager["model"], eager["precision"], strict=True)))
    least = eager[eager["phase"] == "step"].set_index(["model", "precision"])["least_ms"]
    parted = {"forward": wide["forward"], "backward": wide["both"] - wide["forward"]}
    made = pd.DataFrame(parted | {"optimizer": wide["step"] - wide["both"], "least": least})
    return made.reindex(order)


def _published(ax: Any, rows: pd.DataFrame, published: pd.DataFrame) -> None:
    printed = published[published["precision"] == "float32"]
    printed = printed[printed["gpu"] == "H100"]
    found = printed.pivot_table(index="model", columns="phase", values="seconds", aggfunc="first")
    known = [(place, model) for place, (model, precision) in enumerate(rows.index) if precision == "float32"]
    look = {"marker": "^", "s": 30, "color": canvas.PUBLISHED, "zorder": 4}
    for both, label in ((False, "published, H100: forward, and with backward"), (True, None)):
        seconds = [found.loc[model].sum() if both else found.loc[model, "forward"] for _, model in known]
        ax.scatter([1e3 * one for one in seconds], [place for place, _ in known], label=label, **look)


def modes_chart(*tables: pd.DataFrame, phase: str = "forward", guess: Any = None) -> Figure:
    """One phase of the five sizes in bfloat16, a bar per mode with its share of the peak; a panel per run."""
    shown = [table[(table["precision"] == "autocast") & (table["phase"] == phase)] for table in tables]
    figure, axes = parts.panels(len(tables), rows=max(map(len, shown)), row_height=0.26)
    for ax, table, rows in zip(axes, tables, shown, strict=True):
        parts.rows(ax, [row.model if first else "" for row, first in _firsts(rows)], fontsize=9)
        for place, row in enumerate(rows.itertuples()):
            if pd.isna(row.ms):
                parts.beside(ax, rows["ms"].min(), place, row.status, fontsize=8)
                continue
            ax.barh(place, row.ms, color=_MODES[row.mode], xerr=row.spread_ms, ecolor=canvas.INK, height=0.8)
            of_peak = f", {units.percent(row.mfu)} of peak" if pd.notna(row.mfu) else ""
            parts.beside(ax, row.ms + row.spread_ms, place, f"{units.seconds(row.ms / 1e3)}{of_peak}", fontsize=8)
        parts.swatches(ax, {NAMES[mode]: _MODES[mode] for mode in dict.fromkeys(rows["mode"])})
        if ax is axes[-1]:
            parts.guess_line(ax, guess)
        ax.set(title=where(table), xlabel=f"ms per {NAMES[phase]}, bfloat16")
        ax.set_xlim(0, 1.5 * (rows["ms"] + rows["spread_ms"].fillna(0)).max())
    canvas.shared_legend(figure, axes, columns=5)
    return canvas.finish(figure, sources(*tables))


def _firsts(rows: pd.DataFrame):
    """Yield each row, and whether it is the first of its model."""
    before = None
    for row in rows.itertuples():
        yield row, row.model != before
        before = row.model


def launches_chart(*tables: pd.DataFrame) -> Figure:
    """A forward's ms by layers and by width: measured, the host's launches, the GPU's work, and the model's line."""
    figure, grid = canvas.canvas(2, len(tables), height=0.6 + 3.1 * len(tables), squeeze=False)
    for axes, table in zip(grid, tables, strict=True):
        for ax, (axis, column) in zip(axes, (("layers", "layers"), ("width", "hidden")), strict=True):
            rows = table[table["axis"] == axis].sort_values(column)
            x = rows[column]
            ax.scatter(x, rows["fastest_ms"], s=26, color="white", edgecolor=canvas.INK, zorder=3, label="its fastest")
            ax.errorbar(
                x,
                rows["eager_ms"],
                yerr=rows["spread_ms"],
                fmt="o",
                color=canvas.INK,
                ms=5,
                label="eager forward (median)",
            )
            ax.plot(x, rows["host_ms"], color=_HOST, marker=".", lw=1.2, label="kernels × time per launch")
            if rows["gpu_ms"].notna().any():
                ax.plot(x, rows["gpu_ms"], color=_GPU, marker=".", lw=1.2, label="the GPU's work (CUDA graph)")
            ax.plot(x, rows["predicted_ms"], color=_MODEL, lw=1.2, ls=(0, (4, 2)), label="model: the longer of both")
            for scale in (ax.xaxis, ax.yaxis):
                canvas.logarithmic(scale)
            ax.set_xticks(list(x), [str(value) for value in x], fontsize=8, rotation=45)
            ax.minorticks_off()
            ax.set(title=f"{where(table)}: by {axis}", xlabel=f"{column} (log)", ylabel="ms per forward (log)")
            ax.grid(axis="y")
    canvas.shared_legend(figure, list(grid.flat), columns=4)
    return canvas.finish(figure, sources(*tables))
