"""Throughput, memory, bubble and splits as curves and bars; a small live run stands beside the recorded one."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.pipeline.charts.lanes import NAMES
from labkit.provenance import sources, where
from labkit.story import units

MODES = {"streaming": canvas.SERIES[0], "fenced": canvas.SERIES[2], "training": canvas.SERIES[5]}
ORIGINS = {
    "formula": (canvas.THEORY, "|", 260),
    "simulated": (canvas.PREDICTED, "D", 46),
    "measured": (canvas.MEASURED, "o", 60),
}


def gpus_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None, guess=None) -> Figure:
    """Samples a second against GPUs, a line a mode, the mode's limit dashed; a panel a run.

    Published figures and the reader's `guess` (4 GPUs, streaming; a number or a Prediction) stand in the last panel.
    """
    figure, axes = canvas.canvas(len(tables), height=4.0, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        for mode, rows in table.groupby("mode", sort=False):
            rate, color = rows["samples_per_s"], MODES[mode]
            ax.errorbar(
                rows["ranks"], rate, yerr=rows["spread_samples_per_s"], marker="o", color=color, capsize=3, label=mode
            )
            ax.plot(rows["ranks"], rate.iloc[0] * rows["limit"], color=color, ls=(0, (4, 2)), lw=1.1)
        ax.set(
            title=where(table),
            xlabel="GPUs in the pipeline",
            ylabel="samples/second",
            xticks=sorted(set(table["ranks"])),
        )
        ax.grid(axis="y")
    last, handles = axes[0, -1], axes[0, 0]
    if published is not None:
        handles.plot([], [], color=canvas.PUBLISHED, marker="^", ls="", label="published")
        known = published[published["gpus"].isin(tables[-1]["ranks"])]
        last.scatter(
            known["gpus"], known["samples_per_second"], color=canvas.PUBLISHED, marker="^", zorder=3, clip_on=False
        )
    value = getattr(guess, "value", guess)
    if value is not None:
        last.scatter([4], [value], color=canvas.PREDICTED, marker="D", zorder=4)
        handles.plot([], [], color=canvas.PREDICTED, marker="D", ls="", label="your prediction")
    handles.plot([], [], color=canvas.QUIET, ls=(0, (4, 2)), lw=1.1, label="limit of the mode")
    for ax in axes[0]:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    canvas.legend_above(handles, columns=6)
    return canvas.finish(figure, sources(*tables, published))


def micro_batch_curve(*tables: pd.DataFrame) -> Figure:
    """Samples a second against micro-batches, a line a mode, its best count ringed; a panel a run."""
    figure, axes = canvas.canvas(len(tables), height=4.0, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        table = table[table["samples_per_s"].notna()]
        for mode, rows in table.groupby("mode", sort=False):
            rate, color = rows["samples_per_s"], MODES[mode]
            ax.errorbar(
                rows["micro_batches"],
                rate,
                yerr=rows["spread_samples_per_s"],
                marker="o",
                ms=5,
                color=color,
                capsize=3,
                label=mode,
            )
            best = rows.loc[rate.idxmax()]
            ax.scatter([best["micro_batches"]], [best["samples_per_s"]], s=170, fc="none", ec=color, lw=1.4)
        counts = sorted(set(table["micro_batches"]))
        ax.set_xscale("log", base=2)
        ax.set(
            title=where(table),
            xlabel="micro-batches (log)",
            ylabel="samples/second",
            xticks=counts,
            xticklabels=counts,
        )
        ax.minorticks_off()
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        ax.grid(axis="y")
    axes[0, 0].scatter([], [], s=110, fc="none", ec=canvas.QUIET, label="best count")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(*tables))


def memory_chart(table: pd.DataFrame) -> Figure:
    """Peak memory of every rank, a group of bars a setting, a panel a mode; rank 0 first."""
    modes = [mode for mode in MODES if mode in set(table["mode"])]
    figure, axes = canvas.canvas(len(modes) or 1, height=3.6, squeeze=False)
    labels = "ranks" if len(set(table["ranks"])) > 1 else "split"
    for ax, mode in zip(axes[0], modes, strict=False):
        rows, ticks, at = table[table["mode"] == mode], [], 0.0
        for value, group in rows.groupby(labels, sort=False):
            group = group.sort_values("rank")
            ax.bar([at + i for i in range(len(group))], group["peak_mib"] / 1024, color=MODES[mode], width=0.86)
            for i, rank in enumerate(group["rank"]):
                ax.text(at + i, 0, f"{rank}\n", ha="center", va="bottom", fontsize=7.5, color="white")
            ticks.append((at + (len(group) - 1) / 2, f"{value} GPUs" if labels == "ranks" else value))
            at += len(group) + 0.8
        ax.set(title=mode, ylabel="peak memory, GiB", xlabel="a bar a rank")
        ax.set_xticks([t for t, _ in ticks], [name for _, name in ticks])
        ax.grid(axis="y")
    if not modes:
        axes[0, 0].set(title="Memory", xlabel="rank", ylabel="GiB")
        axes[0, 0].text(0.5, 0.5, "this run had no GPU memory to measure", ha="center", transform=axes[0, 0].transAxes)
    return canvas.finish(figure, table.attrs["source"])


def bubble_chart(*tables: pd.DataFrame) -> Figure:
    """The bubble of each schedule by formula, simulated with measured stage times, and measured; a panel a run."""
    height = 1.5 + 0.56 * max(len(table) for table in tables)
    figure, axes = canvas.canvas(len(tables), height=height, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        places = range(len(table))
        for (origin, (color, marker, size)), aside in zip(ORIGINS.items(), (0.0, -0.16, 0.16), strict=True):
            at = [place + aside for place in places]
            ax.scatter(100 * table[f"bubble_{origin}"], at, c=color, marker=marker, s=size, label=origin, zorder=3)
        names = [
            f"{NAMES[row.schedule]}, {row.micro_batches}\n{units.seconds(row.step_ms / 1e3)} a step"
            for row in table.itertuples()
        ]
        ax.set(title=where(table), yticks=places, yticklabels=names, xlabel="bubble, % of the ranks' time")
        ax.set_ylim(len(table) - 0.5, -0.5)
        ax.set_xlim(0, 1.12 * max(1.0, ax.get_xlim()[1]))
        for line in range(1, len(table)):
            ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
        ax.grid(axis="x")
    canvas.legend_above(axes[0, 0], markerscale=0.7)
    return canvas.finish(figure, sources(*tables))


def splits_chart(*tables: pd.DataFrame) -> Figure:
    """Each split's step over the even split's: measured, and forecast from the even split's spans; a panel a run."""
    height = 1.5 + 0.5 * max(len(table) for table in tables)
    figure, axes = canvas.canvas(len(tables), height=height, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        base = table.loc[table["split"] == table.attrs["even"], "step_ms"].iloc[0]
        places = range(len(table))
        ax.barh(
            places,
            table["ratio"],
            color=canvas.MEASURED,
            height=0.55,
            xerr=table["spread_step_ms"] / base,
            ecolor=canvas.INK,
            label="measured",
        )
        ax.scatter(
            table["forecast_ratio"], places, color=canvas.PREDICTED, marker="D", s=46, zorder=3, label="forecast"
        )
        for place, row in zip(places, table.itertuples(), strict=True):
            ax.text(0.06, place, units.times(row.ratio), va="center", fontsize=9, color="white")
        ax.set(title=f"{where(table)}, {table['mode'].iloc[0]}", yticks=places, yticklabels=table["split"])
        ax.set(xlabel=f"times the step of {table.attrs['even']}", xlim=(0, 1.22 * ax.get_xlim()[1]))
        ax.set_ylim(len(table) - 0.5, -0.5)
        ax.grid(axis="x")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(*tables))
