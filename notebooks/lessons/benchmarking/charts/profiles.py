"""Profiles of lab 06 → figures: kernels by family, operators under their roofs, a forward on two lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import ink_on
from labkit.charts.labels import Labels
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.benchmarking.theory import FAMILIES, NAMES, PRECISION_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAMILY_COLORS = dict(
    zip(FAMILIES, ("#0072B2", "#CC79A7", "#E69F00", "#F0E442", "#999999", "#009E73", "#D9D9D9"), strict=True)
)
_SPANS = {"operator": "#BFBFBF", "launch": canvas.SERIES[2], "kernel": canvas.COMPUTE}
_NAMED, _DRAWN = 0.02, 1e-4  # of the step: operators with less time have no name on the chart, or no dot
_WINDOW = (0.1, 0.18)  # of a forward: the part that is drawn, while the host still launches


def families_chart(*tables: pd.DataFrame) -> Figure:
    """Shares of all kernels' time by family, a bar per size, precision and phase; a panel per run."""
    wides = [_wide(table) for table in tables]
    figure, axes = parts.panels(len(tables), rows=max(map(len, wides)), row_height=0.3)
    for ax, table, wide in zip(axes, tables, wides, strict=True):
        labels = [f"{model}, {PRECISION_NAMES[precision]}, {NAMES[phase]}" for model, precision, phase in wide.index]
        parts.rows(ax, labels, fontsize=8)
        end: Any = 0.0
        for family in (family for family in FAMILIES if family in wide):
            end = parts.bars(ax, 100 * wide[family], start=end, color=_FAMILY_COLORS[family], label=family)
        for place, share in enumerate(wide.get("matmul", ())):
            ax.text(1, place, units.percent(share), va="center", fontsize=8, color=ink_on(_FAMILY_COLORS["matmul"]))
        ax.set(title=where(table), xlabel="% of the time of all kernels", xlim=(0, 100))
        ax.grid(False)
    canvas.shared_legend(figure, axes, columns=7)
    return canvas.finish(figure, sources(*tables))


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    keys = ["model", "precision", "phase"]
    order = list(dict.fromkeys(zip(*(table[key] for key in keys), strict=True)))
    wide = table.pivot_table(index=keys, columns="family", values="share", aggfunc="first")
    return wide.reindex(order).fillna(0.0)


def roofline_chart(*tables: pd.DataFrame) -> Figure:
    """Each operator's TFLOP/s by its FLOP per byte, its dot as large as its share of the time, under both roofs.

    Operators with less than 0.01 % of the time are left out.
    """
    figure, axes = parts.panels(len(tables), height=4.6)
    shown = [table[table["share"] >= _DRAWN] for table in tables]
    for ax, table in zip(axes, shown, strict=True):
        peak, rate = fact(table, "peak_tflops"), fact(table, "gb_per_s")
        ax.scatter(
            table["flop_per_byte"],
            table["tflops"],
            s=_area(table),
            color=canvas.MEASURED,
            alpha=0.55,
            linewidth=0,
        )
        known = rate == rate
        low, high = table["flop_per_byte"].min() / 4, 6 * table["flop_per_byte"].max()
        high = max(high, 3e3 * peak / rate) if known else high
        if known:
            x = np.geomspace(low, high, 200)
            ax.plot(x, np.minimum(x * rate / 1e3, peak), color=canvas.THEORY, lw=1.4)
        ax.set_xlim(low, high)
        ax.set_ylim(table["tflops"].min() / 4, 8 * max(table["tflops"].max(), peak if known else 0))
        for scale in (ax.xaxis, ax.yaxis):
            canvas.logarithmic(scale)
        ax.set(title=_title(table), xlabel="FLOP per byte (log)", ylabel="TFLOP/s (log)")
        ax.grid(axis="both")
    canvas.finish(figure, sources(*tables))
    for ax, table in zip(axes, shown, strict=True):
        _names(ax, table)
    return figure


def _title(table: pd.DataFrame) -> str:
    setting = f"{fact(table, 'model')}, {PRECISION_NAMES[fact(table, 'precision')]}, {NAMES[fact(table, 'phase')]}"
    peak, rate = fact(table, "peak_tflops"), fact(table, "gb_per_s")
    roofs = f"\nroofs: {units.rate(rate)}, {units.number(peak)} TFLOP/s" if rate == rate else "\nno roof is known"
    return f"{where(table).partition(',')[0]}: {setting}{roofs}"


def _names(ax: Any, rows: pd.DataFrame) -> None:
    """Write the names of the operators beside their dots, those with the largest share of the time first."""
    labels = Labels(ax, rows["flop_per_byte"], rows["tflops"], np.sqrt(_area(rows)))
    shares = rows["share"].reset_index(drop=True)
    for number in shares[shares >= _NAMED].sort_values(ascending=False).index:
        name = rows["operator"].iloc[number].removeprefix("aten::").strip("_")[:26]
        labels.beside([number], name, always=False, fontsize=7.5)


def _area(rows: pd.DataFrame) -> pd.Series:
    """Return the dots' areas in square points."""
    return 20 + 900 * rows["share"]


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """A part of one profiled forward per panel: operators and launches of the host above, kernels below.

    Of a CPU all of it: operators are all that there is.
    """
    figure, grid = canvas.canvas(1, len(tables), height=0.9 + 1.5 * len(tables), squeeze=False)
    for ax, table in zip(grid[:, 0], tables, strict=True):
        lanes = ["operators", "launches", "kernels"] if (table["span"] == "kernel").any() else ["operators"]
        parts.rows(ax, lanes)
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
        whole_ms = table["end_ms"].max()
        begin, end = (edge * whole_ms for edge in (_WINDOW if "kernels" in lanes else (0, 1)))
        for place, (span, color) in enumerate(list(_SPANS.items())[: len(lanes)]):
            rows = table[(table["span"] == span) & (table["end_ms"] > begin) & (table["start_ms"] < end)]
            lengths = zip(rows["start_ms"], rows["end_ms"] - rows["start_ms"], strict=True)
            ax.broken_barh(list(lengths), (place - 0.31, parts.BAR), facecolors=color, linewidth=0)
        setting = f"{fact(table, 'model')}, {PRECISION_NAMES[fact(table, 'precision')]}"
        part = f"{units.seconds((end - begin) / 1e3)} of {units.seconds(whole_ms / 1e3)}"
        ax.set_title(f"{where(table)}: forward of {setting}, {part}")
        ax.set(xlabel="ms since the first operator began", xlim=(begin, end))
    parts.swatches(
        grid[0, 0],
        {
            "the host: operators": _SPANS["operator"],
            "the host launches": _SPANS["launch"],
            "the GPU works": _SPANS["kernel"],
        },
    )
    canvas.legend_above(grid[0, 0])
    return canvas.finish(figure, sources(*tables))
