"""Rates, ledgers and knobs as pictures; a small live run stands beside the recorded one."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas, ledgers, parts
from labkit.charts.waterfall import waterfall_chart as waterfall_chart
from labkit.provenance import fact, sources, where
from labkit.story.names import STRATEGY_LABELS
from labkit.theory.memory import ITEMS

_BATCHES = (canvas.SERIES[0], canvas.SERIES[2], canvas.SERIES[3])
_MARKERS = "^vsP"  # one per report


def ledger_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Stacked bars of what a rank holds, by item, a bar per strategy; a diamond where the allocator saw the peak.

    A panel per table; with several batches the largest is shown. `guess` (GiB, a number or a Prediction) is a line in
    the last panel.
    """
    shown = [table[table["batch"] == table["batch"].max()] if "batch" in table else table for table in tables]
    figure, axes = parts.panels(len(tables), rows=max(map(len, shown)), row_height=0.46)
    for ax, table, rows in zip(axes, tables, shown, strict=True):
        scale, unit = ledgers.memory_unit(rows["predicted"].max())
        places = parts.rows(ax, [STRATEGY_LABELS[name] for name in rows["strategy"]])
        ledgers.held_bars(ax, places, {item: rows[item].to_numpy() / scale for item in ITEMS})
        if "peak" in rows:
            ledgers.peak_marks(ax, places, rows["peak"] / scale)
        batch = f", batch {rows['batch'].iloc[0]}" if "batch" in rows else ""
        ax.set(title=f"{where(table)}{batch}", xlabel=f"memory on each of {fact(table, 'ranks')} ranks, {unit}")
        if ax is axes[-1]:
            parts.guess_line(ax, guess, 1024 / scale)
    canvas.shared_legend(figure, axes, columns=4)
    return canvas.finish(figure, sources(*tables))


def strategies_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Samples per second by strategy, a colour per batch, with spread; a panel per run, published ones in the last."""
    figure, axes = parts.panels(len(tables), height=3.9)
    for ax, table in zip(axes, tables, strict=True):
        names, batches = (list(dict.fromkeys(table[column])) for column in ("strategy", "batch"))
        width = 0.8 / len(batches)
        for number, (batch, color) in enumerate(zip(batches, _BATCHES, strict=False)):
            rows = table[table["batch"] == batch].set_index("strategy").reindex(names)
            at = [place + (number - (len(batches) - 1) / 2) * width for place in range(len(names))]
            whiskers = {"yerr": rows["spread_samples_per_s"], "capsize": 3, "ecolor": canvas.INK}
            label = "smaller batch" if number else "larger batch"
            ax.bar(at, rows["samples_per_s"], width * 0.92, color=color, label=label, **whiskers)
            if ax is axes[-1] and published is not None:
                _printed(ax, published, batch, dict(zip(names, at, strict=True)))
        ax.set(title=f"{where(table)}: batch {' and '.join(map(str, batches))}", ylabel="samples/second")
        ax.set_xticks(range(len(names)), [STRATEGY_LABELS[name].replace(", ", "\n") for name in names], fontsize=8.5)
        ax.grid(axis="y")
    if published is not None:
        for report, marker in zip(published["report"].unique(), _MARKERS, strict=False):
            axes[0].scatter([], [], marker=marker, color=canvas.PUBLISHED, label=f"{report} (4 GPUs)")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, sources(*tables, published))


def _printed(ax: Axes, published: pd.DataFrame, batch: int, places: dict[str, float]) -> None:
    """Mark what reports print for a batch, a marker per report."""
    markers = dict(zip(published["report"].unique(), _MARKERS, strict=False))
    rows = published[(published["global_batch"] == batch) & published["strategy"].isin(list(places))]
    for row in rows.drop_duplicates(["report", "strategy"]).itertuples():
        style = {"marker": markers[row.report], "color": canvas.PUBLISHED, "ec": "white", "s": 60, "zorder": 3}
        ax.scatter([places[row.strategy]], [row.samples_per_second], **style)


def differences_chart(*tables: pd.DataFrame, printed: pd.DataFrame | None = None) -> Figure:
    """How far each strategy is from DDP in percent, with an interval; hollow where the difference is within noise.

    Small runs are left out where there is a full one: processes on a CPU say nothing of GPUs here.
    """
    tables = tuple(table for table in tables if not fact(table, "small")) or tables
    rows = [
        (f"{STRATEGY_LABELS[r.strategy]}, batch {r.batch}", r.percent, r.spread_percent, r.resolved, where(table))
        for table in tables
        for r in table.itertuples()
    ]
    if printed is not None:
        rows += [
            (f"{r.report}, batch {r.global_batch}", 100 * r.difference, 200 * r.standard_error, r.resolved, "published")
            for r in printed.itertuples()
        ]
    figure, ax = canvas.canvas(height=1.3 + 0.3 * len(rows))
    places = parts.rows(ax, [f"{name} ({origin})" for name, *_, origin in rows])
    for place, (_, percent, spread, resolved, origin) in zip(places, rows, strict=True):
        color = canvas.RECORDED if origin.startswith("Recorded") else canvas.MEASURED
        color = canvas.PUBLISHED if origin == "published" else color
        face = color if resolved else "white"
        ax.errorbar([percent], [place], xerr=[spread], color=color, marker="o", capsize=3, ms=6, mfc=face)
    ax.axvline(0, color=canvas.INK, lw=1)
    ax.set(title="Rate compared with DDP's: filled where beyond noise", xlabel="difference from DDP, %")
    return canvas.finish(figure, sources(*tables, printed))


def zero_chart(table: pd.DataFrame) -> Figure:
    """Three panels, a bar per strategy: samples per second, peak memory, bytes through each link per step."""
    figure, axes = parts.panels(3, height=1.6 + 0.36 * len(table), sharey=True)
    columns = (
        ("samples_per_s", 1, "samples/second", "Rate"),
        ("peak_mib", 1024, "peak memory, GiB", "Memory"),
        ("link_mib", 1, "MiB through a link per step", "Traffic"),
    )
    colors = [canvas.SERIES[2] if name.startswith("zero") else canvas.SERIES[0] for name in table["strategy"]]
    for ax, (column, scale, label, title) in zip(axes, columns, strict=True):
        parts.rows(ax, [STRATEGY_LABELS[name] for name in table["strategy"]])
        spread = table["spread_samples_per_s"] if ax is axes[0] else None
        parts.bars(ax, table[column] / scale, color=colors, spread=spread)
        ax.set(xlabel=label, title=title)
    return canvas.finish(figure, sources(table))
