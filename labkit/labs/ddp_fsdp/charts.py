"""Rates, ledgers and knobs as pictures; a small live run stands beside the recorded one."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.charts.waterfall import waterfall_chart as waterfall_chart
from labkit.provenance import sources, where
from labkit.story.names import STRATEGY_LABELS

ITEMS = {
    "parameters": "#0072B2",
    "gradients": "#D55E00",
    "optimizer": "#009E73",
    "activations": "#C8D8E4",
    "gathered": "#56B4E9",
    "buffers": "#E69F00",
}
WORDS = {"gathered": "gathered parameters", "buffers": "buffers of collectives", "optimizer": "optimizer states"}
BATCHES = (canvas.SERIES[0], canvas.SERIES[2], canvas.SERIES[3])


def ledger_chart(*tables: pd.DataFrame, guess=None) -> Figure:
    """Stacked bars of what a rank holds, by item, a bar a strategy; a diamond where the allocator saw the peak.

    A panel a table; with several batches the largest is shown. `guess` (GiB, a number or a Prediction) is a line in the
    last panel.
    """
    figure, axes = canvas.canvas(len(tables), height=1.5 + 0.46 * max(_rows(t).shape[0] for t in tables), squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        rows = _rows(table)
        scale, unit = (1024, "GiB") if rows["predicted"].max() > 2048 else (1, "MiB")
        left = 0.0
        for item, color in ITEMS.items():
            size = rows[item].to_numpy() / scale
            ax.barh(range(len(rows)), size, left=left, color=color, height=0.62, label=WORDS.get(item, item))
            left = left + size
        if "peak" in rows and rows["peak"].notna().any():
            ax.scatter(
                rows["peak"] / scale,
                range(len(rows)),
                marker="D",
                s=34,
                color=canvas.INK,
                zorder=3,
                label="measured peak",
            )
        ax.set(
            yticks=range(len(rows)),
            yticklabels=[STRATEGY_LABELS[name] for name in rows["strategy"]],
            xlabel=f"memory on each of {table.attrs['ranks']} ranks, {unit}",
            title=_title(table, rows),
        )
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.grid(axis="x")
        if ax is axes[0, -1]:
            _guess(ax, guess, 1 if unit == "GiB" else 1024)
    canvas.shared_legend(figure, axes[0], columns=4)
    return canvas.finish(figure, sources(*tables))


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["batch"] == table["batch"].max()] if "batch" in table else table


def _title(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    batch = f", batch {rows['batch'].iloc[0]}" if "batch" in rows else ""
    return f"{where(table)}{batch}"


def _guess(ax: Axes, guess, scale: float = 1.0) -> None:
    value = getattr(guess, "value", guess)
    if value is not None:
        ax.axvline(value * scale, color=canvas.PREDICTED, ls=(0, (3, 2)), lw=1.6, label="your prediction")


def strategies_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Samples a second by strategy, a colour a batch, whiskers the spread; a panel a run, published in the last."""
    figure, axes = canvas.canvas(len(tables), height=3.9, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        names = list(dict.fromkeys(table["strategy"]))
        batches = list(dict.fromkeys(table["batch"]))
        width = 0.8 / len(batches)
        for number, (batch, color) in enumerate(zip(batches, BATCHES, strict=False)):
            rows = table[table["batch"] == batch].set_index("strategy").reindex(names)
            at = [place + (number - (len(batches) - 1) / 2) * width for place in range(len(names))]
            ax.bar(
                at,
                rows["samples_per_s"],
                width * 0.92,
                color=color,
                yerr=rows["spread_samples_per_s"],
                capsize=3,
                ecolor=canvas.INK,
                label="smaller batch" if number else "larger batch",
            )
            if ax is axes[0, -1] and published is not None:
                _printed(ax, published, batch, dict(zip(names, at, strict=True)))
        ax.set(title=f"{where(table)}: batch {' and '.join(map(str, batches))}", ylabel="samples/second")
        ax.set_xticks(range(len(names)), [STRATEGY_LABELS[name].replace(", ", "\n") for name in names], fontsize=8.5)
        ax.grid(axis="y")
    if published is not None:
        for report, marker in zip(published["report"].unique(), "^vsP", strict=False):
            axes[0, 0].scatter([], [], marker=marker, color=canvas.PUBLISHED, label=f"{report} (4 GPUs)")
    canvas.shared_legend(figure, axes[0])
    return canvas.finish(figure, sources(*tables, published))


def _printed(ax: Axes, published: pd.DataFrame, batch: int, places: dict[str, float]) -> None:
    """Mark what reports print for a batch, a marker a report."""
    markers = dict(zip(published["report"].unique(), "^vsP", strict=False))
    for row in published[published["global_batch"] == batch].drop_duplicates(["report", "strategy"]).itertuples():
        if row.strategy in places:
            ax.scatter(
                [places[row.strategy]],
                [row.samples_per_second],
                marker=markers[row.report],
                zorder=3,
                color=canvas.PUBLISHED,
                ec="white",
                s=60,
            )


def differences_chart(*tables: pd.DataFrame, printed: pd.DataFrame | None = None) -> Figure:
    """How far each strategy is from DDP in percent, with an interval; hollow where it is not told apart from zero.

    Small runs are left out where there is a full one: what CPU processes say of this is another matter.
    """
    tables = [table for table in tables if not table.attrs["small"]] or tables
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
    colors = {"published": canvas.PUBLISHED}
    for place, (_, percent, spread, resolved, origin) in enumerate(rows):
        color = colors.get(origin, canvas.RECORDED if origin.startswith("Recorded") else canvas.MEASURED)
        ax.errorbar(
            [percent],
            [place],
            xerr=[spread],
            color=color,
            marker="o",
            capsize=3,
            ms=6,
            mfc=color if resolved else "white",
        )
    ax.axvline(0, color=canvas.INK, lw=1)
    ax.set(yticks=range(len(rows)), yticklabels=[f"{name} ({origin})" for name, *_, origin in rows])
    ax.set(title="Rate beside DDP's: filled where these data tell them apart", xlabel="difference from DDP, %")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x")
    return canvas.finish(figure, sources(*tables, printed))


def zero_chart(table: pd.DataFrame) -> Figure:
    """Three panels, a bar a strategy: samples a second, peak memory, bytes through each link a step."""
    figure, axes = canvas.canvas(3, height=1.6 + 0.36 * len(table), sharey=True)
    panels = (
        ("samples_per_s", 1, "samples/second", "Rate"),
        ("peak_mib", 1024, "peak memory, GiB", "Memory"),
        ("link_mib", 1, "MiB through a link a step", "Traffic"),
    )
    colors = [canvas.SERIES[2] if name.startswith("zero") else canvas.SERIES[0] for name in table["strategy"]]
    for ax, (column, scale, label, title) in zip(axes, panels, strict=True):
        ax.barh(range(len(table)), table[column] / scale, color=colors, height=0.62)
        ax.set(xlabel=label, title=title)
        ax.grid(axis="x")
    axes[0].errorbar(
        table["samples_per_s"],
        range(len(table)),
        xerr=table["spread_samples_per_s"],
        ls="",
        color=canvas.INK,
        capsize=3,
    )
    axes[0].set(yticks=range(len(table)), yticklabels=[STRATEGY_LABELS[name] for name in table["strategy"]])
    axes[0].set_ylim(len(table) - 0.5, -0.5)
    return canvas.finish(figure, table.attrs["source"])
