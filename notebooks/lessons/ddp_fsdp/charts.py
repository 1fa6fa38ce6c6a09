"""Rates, ledgers and knobs as pictures; a small live run stands beside the recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.charts.waterfall import waterfall_chart as waterfall_chart
from labkit.provenance import fact, sources, where
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS
from labkit.theory.memory import ITEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BATCHES = (canvas.SERIES[0], canvas.SERIES[2], canvas.SERIES[3])
_LIBRARIES = {"torch": canvas.SERIES[0], "DeepSpeed": canvas.SERIES[2]}
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
    """Samples per second by strategy, a colour per batch, with spread; a panel per run, published rates in the last.

    `published` are the rows of `printed_runs`, of four GPUs.
    """
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
        for name, marker in zip(published["name"].unique(), _MARKERS, strict=False):
            axes[0].scatter([], [], marker=marker, color=canvas.PUBLISHED, label=f"{name}: 4 GPUs")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables, published))


def _printed(ax: Axes, published: pd.DataFrame, batch: int, places: dict[str, float]) -> None:
    """Mark what reports print for a batch, a marker per report."""
    markers = dict(zip(published["name"].unique(), _MARKERS, strict=False))
    rows = published[(published["global_batch"] == batch) & published["strategy"].isin(list(places))]
    for row in rows.itertuples():
        style = {"marker": markers[row.name], "color": canvas.PUBLISHED, "ec": "white", "s": 60, "zorder": 3}
        ax.scatter([places[row.strategy]], [row.samples_per_second], **style)


def differences_chart(*tables: pd.DataFrame, printed: pd.DataFrame | None = None) -> Figure:
    """How far each strategy is from DDP in percent, with an interval; hollow within noise.

    A panel per run; reports' differences (`printed_differences`) stand below the last one's.
    """
    known = printed.itertuples() if printed is not None else []
    reports = [
        (f"FSDP full, batch {r.global_batch}:\n{r.name}", 100 * r.difference, 200 * r.standard_error, r.resolved)
        for r in known
    ]
    rows = [
        [
            (f"{STRATEGY_LABELS[r.strategy]}, batch {r.batch}", r.percent, r.spread_percent, r.resolved)
            for r in table.itertuples()
        ]
        for table in tables
    ]
    most = max(len(rows[-1]) + len(reports), *map(len, rows))
    figure, axes = parts.panels(len(tables), height=1.8 + 0.34 * most)
    for ax, table, measured in zip(axes, tables, rows, strict=True):
        drawn = measured + reports if ax is axes[-1] else measured
        places = parts.rows(ax, [name for name, *_ in drawn], fontsize=8.5)
        recorded = where(table).startswith("Recorded")
        color = canvas.RECORDED if recorded else canvas.MEASURED
        if measured:
            axes[0].plot([], [], "o", color=color, label="recorded" if recorded else "measured here")
        for place, (_, percent, spread, beyond) in zip(places, drawn, strict=True):
            origin = color if place < len(measured) else canvas.PUBLISHED
            face = origin if beyond else "white"
            ax.errorbar([percent], [place], xerr=[spread], color=origin, marker="o", capsize=3, ms=6, mfc=face)
        ax.axvline(0, color=canvas.INK, lw=1)
        ax.set(title=where(table), xlabel="rate compared with DDP's, %")
    if reports:
        axes[0].plot([], [], "o", color=canvas.PUBLISHED, label="published")
    axes[0].plot([], [], "o", color=canvas.INK, mfc="white", label="hollow: within noise")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables, printed))


def zero_chart(table: pd.DataFrame) -> Figure:
    """Three panels, a bar per strategy: samples per second, peak memory, bytes through each link per step."""
    figure, axes = parts.panels(3, height=1.9 + 0.36 * len(table), sharey=True)
    columns = (
        ("samples_per_s", 1, "samples/second", "Rate"),
        ("peak_mib", 1024, "peak memory, GiB", "Memory"),
        ("link_mib", 1, "MiB through a link per step", "Traffic"),
    )
    limits = {"zero": "\nlimits at 0", "default": "\ndefault limits", "": ""}
    names = [STRATEGY_LABELS[row.strategy] + limits[row.limits] for row in table.itertuples()]
    colors = [_LIBRARIES["DeepSpeed" if name.startswith("zero") else "torch"] for name in table["strategy"]]
    for ax, (column, scale, label, title) in zip(axes, columns, strict=True):
        places = parts.rows(ax, names, fontsize=8.5)
        spread = table["spread_samples_per_s"] if ax is axes[0] else None
        parts.bars(ax, table[column] / scale, color=colors, spread=spread)
        ends = (table[column] + (0 if spread is None else spread)) / scale
        for place, value, end in zip(places, table[column] / scale, ends, strict=True):
            text = "not known" if pd.isna(value) else units.number(value, 4)
            parts.beside(ax, 0 if pd.isna(value) else end, place, text)
        longest = (table[column] / scale).max()
        ax.set(xlabel=label, title=title, xlim=(0, 1.35 * longest if longest > 0 else 1))
    for library, color in _LIBRARIES.items():
        axes[0].barh([0], [0], color=color, label=library)
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, sources(table))


def per_sample_chart(*tables: pd.DataFrame, printed_mb: dict[str, float]) -> Figure:
    """What a sample adds to the peak: by formula and measured, per attention and dropout; a panel per run.

    `printed_mb` are the reports' figures by their names, lines in the last panel.
    """
    figure, axes = parts.panels(len(tables), rows=4, row_height=0.5)
    for ax, table in zip(axes, tables, strict=True):
        dropped = ["no dropout", f"dropout {table['dropout'].max():g}"]
        names = [f"{row.attention} attention,\n{dropped[row.dropout > 0]}" for row in table.itertuples()]
        places = parts.rows(ax, names, fontsize=8.5)
        ax.barh(places, table["formula_mb"], parts.BAR, color=canvas.THEORY, label="activations by formula")
        ax.scatter(table["peak_mb"], places, marker="D", s=30, color=canvas.MEASURED, zorder=3, label="measured peak")
        if ax is axes[-1]:
            for (name, value), dashes in zip(printed_mb.items(), ((4, 2), (1, 2)), strict=False):
                ax.axvline(value, color=canvas.PUBLISHED, ls=(0, dashes), lw=1.4, label=name)
        ax.set(title=where(table), xlabel="MB (10^6 bytes) per sample")
        ax.set_xlim(
            0,
            1.1 * max(table[["formula_mb", "peak_mb"]].max().max(), *(printed_mb.values() if ax is axes[-1] else [0])),
        )
    canvas.shared_legend(figure, axes[::-1])
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables))
