"""Tables of lab 03 → figures: timelines with a lane per rank, curves and bars; a live run beside the recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_on
from labkit.charts.parts import bars, panels, rows, same_width, swatches
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.pipeline.theory.schedules import SCHEDULE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Forward is what the whole workbook calls compute; the backward's parts are darker, so that the two stay one family.
COLORS = {
    "F": canvas.COMPUTE,
    "B": "#00405F",
    "I": "#00405F",
    "W": "#8DB7CE",
    "U": "#009E73",
    "T": canvas.COMMUNICATE,
    "wait": canvas.WAIT,
}
WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward",
    "W": "weight gradient",
    "U": "optimizer",
    "T": "transfer",
    "wait": "waiting",
}
NAMES = {schedule: name[0].upper() + name[1:] for schedule, name in SCHEDULE_NAMES.items()}  # as a title begins
_WIDE = 0.022  # share of the axis that a bar must span to hold its micro-batch's number


def _lanes(ax: Axes, table: pd.DataFrame, end: float) -> None:
    """Draw the spans of a table on `ax`, rank 0 on top, from 0 to `end`."""
    ranks = sorted(table["rank"].unique())
    rows(ax, [f"rank {rank}" for rank in ranks])
    ax.grid(visible=False)
    for kind, spans in table.groupby("kind", sort=False):
        thin = kind == "wait"
        look = {"height": 0.34 if thin else 0.8, "alpha": 0.55 if thin else 1, "color": COLORS[kind]}
        look |= {"edgecolor": "white", "linewidth": 0 if kind in ("T", "wait") else 0.4}
        ax.barh(spans["rank"], spans["end_ms"] - spans["start_ms"], left=spans["start_ms"], **look)
    numbered = table[table["kind"].isin(["F", "B", "I"]) & (table["end_ms"] - table["start_ms"] > _WIDE * end)]
    for span in numbered.itertuples():
        inside = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink_on(COLORS[span.kind])}
        ax.text((span.start_ms + span.end_ms) / 2, span.rank, span.micro_batch, **inside)
    ax.set_xlim(0, end)
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def words_used(*tables: pd.DataFrame) -> dict[str, str]:
    """The names of the tables' spans, and their colours."""
    return {WORDS[kind]: COLORS[kind] for kind in COLORS if any((table["kind"] == kind).any() for table in tables)}


def gantt_chart(measured: pd.DataFrame, simulated: pd.DataFrame) -> Figure:
    """The measured timeline over the simulated one: same axes, same colours; the titles say how long each is."""
    figure, axes = canvas.canvas(1, 2, height=1.7 + 0.62 * measured["rank"].nunique(), sharex=True)
    end = 1.01 * max(measured["end_ms"].max(), simulated["end_ms"].max())
    schedule, _, rest = fact(measured, "setting").partition(", ")
    residual = f"{100 * fact(measured, 'residual'):+.1f}".replace("-", "−")
    lasts = [units.seconds(fact(measured, name) / 1e3) for name in ("measured_ms", "simulated_ms")]
    titles = (
        f"Measured: {NAMES.get(schedule, schedule)}, {rest}: {lasts[0]}",
        f"Simulated with the measured stage times: {lasts[1]} ({residual} %)",
    )
    for ax, table, title in zip(axes, (measured, simulated), titles, strict=True):
        _lanes(ax, table, end)
        ax.set_title(title)
    axes[1].set_xlabel("ms since all ranks were ready")
    swatches(axes[0], words_used(measured, simulated))
    canvas.legend_above(axes[0], columns=7)
    skew = fact(measured, "skew_us")
    clock = f"clocks apart by at most {units.seconds(skew / 1e6)}" if skew else "one system clock"
    return canvas.finish(figure, f"{_idle(measured)}; {sources(measured)}; {clock}")


def _idle(table: pd.DataFrame) -> str:
    """Say which shares of the ranks' time went into waiting and into transfers."""
    length = (table["end_ms"] - table["start_ms"]).groupby(table["kind"]).sum()
    waited, moved = (length.get(kind, 0.0) / length.sum() for kind in ("wait", "T"))
    return f"measured: {units.percent(waited)} waiting, {units.percent(moved)} transfers"


def schedules_chart(*tables: pd.DataFrame) -> Figure:
    """Schedules under one another on one axis, in units of one rank's forward; the titles give bubble and memory."""
    ranks = max(table["rank"].nunique() for table in tables)
    height = 1.1 + (0.55 + 0.21 * ranks) * len(tables)
    figure, axes = canvas.canvas(1, len(tables), height=height, sharex=True, squeeze=False)
    end = 1.01 * max(table["end_ms"].max() for table in tables)
    for ax, table in zip(axes[:, 0], tables, strict=True):
        _lanes(ax, table, end)
        bubble, kept = units.percent(fact(table, "bubble")), f"{fact(table, 'in_flight'):.3g} micro-batches"
        ax.set_title(f"{NAMES[fact(table, 'setting')]}: bubble {bubble}, rank 0 keeps {kept}", fontsize=10)
        ax.tick_params(axis="y", labelsize=8)
    axes[-1, 0].set_xlabel("times one rank's forward of a micro-batch")
    swatches(axes[0, 0], words_used(*tables))
    canvas.legend_above(axes[0, 0], columns=7)
    return canvas.finish(figure, sources(tables[0]))


_MODES = {"streaming": canvas.SERIES[0], "fenced": canvas.SERIES[2], "training": canvas.SERIES[5]}
_BUBBLES = {  # colour, marker, its size, and how many rows aside, so that all show
    "formula": (canvas.THEORY, "|", 260, 0.0),
    "simulated": (canvas.PREDICTED, "D", 46, -0.16),
    "measured": (canvas.MEASURED, "o", 60, 0.16),
}
_FAR_BELOW = 0.1  # of the largest published rate
_LIMIT = {"ls": (0, (4, 2)), "lw": 1.1}


def gpus_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None, guess: Any = None) -> Figure:
    """Samples per second against GPUs, a line per mode, the mode's limit dashed; a panel per run.

    Published figures and the reader's `guess` (4 GPUs, streaming; a number or a Prediction) stand in the last panel.
    """
    figure, axes = panels(len(tables), height=4.0)
    for ax, table in zip(axes, tables, strict=True):
        for mode, line in table.groupby("mode", sort=False):
            _curve(ax, line, "ranks", str(mode))
            ax.plot(line["ranks"], line["samples_per_s"].iloc[0] * line["limit"], color=_MODES[mode], **_LIMIT)
        ax.set(title=where(table), xlabel="GPUs in the pipeline", ylabel="samples/second")
        ax.set_xticks(sorted(set(table["ranks"])))
        ax.grid(axis="y")
    first, last = axes[0], axes[-1]
    if published is not None:
        known = published[published["gpus"].isin(tables[-1]["ranks"])]
        look: dict[str, Any] = {"edgecolors": canvas.PUBLISHED, "marker": "^", "zorder": 3, "clip_on": False}
        rates = known["samples_per_second"]
        last.scatter(known["gpus"], rates, facecolors=canvas.PUBLISHED, **look)
        first.plot([], [], ls="", label="published", color=canvas.PUBLISHED, marker="^")
        low = known[rates < _FAR_BELOW * rates.max()]  # a report whose program counts steps, not samples
        if len(low):
            samples = fact(tables[-1], "batch") * low["samples_per_second"]
            last.scatter(low["gpus"], samples, facecolors="none", **look)
            label = "published as steps, × samples per step"
            first.plot([], [], ls="", color=canvas.PUBLISHED, mfc="none", marker="^", label=label)
    value = getattr(guess, "value", guess)
    if value is not None:
        look = {"color": canvas.PREDICTED, "marker": "D"}
        last.scatter([4], [value], zorder=4, **look)
        first.plot([], [], ls="", label="your prediction", **look)
    first.plot([], [], color=canvas.QUIET, label="limit of the mode", **_LIMIT)
    for ax in axes:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    canvas.legend_above(first, columns=4)
    return canvas.finish(figure, f"each panel has its own scale · {sources(*tables, published)}")


def _curve(ax: Axes, line: pd.DataFrame, knob: str, mode: str) -> None:
    """Draw a mode's samples per second against a knob, with whiskers for the spread."""
    spread = line["spread_samples_per_s"]
    look = {"marker": "o", "color": _MODES[mode], "capsize": 3, "label": mode}
    ax.errorbar(line[knob], line["samples_per_s"], yerr=spread, **look)


def micro_batch_curve(*tables: pd.DataFrame) -> Figure:
    """Samples per second against micro-batches, a line per mode, its best count ringed; a panel per run."""
    figure, axes = panels(len(tables), height=4.0)
    for ax, table in zip(axes, tables, strict=True):
        counts = sorted(set(table["micro_batches"]))
        for mode, line in table[table["samples_per_s"].notna()].groupby("mode", sort=False):
            _curve(ax, line, "micro_batches", str(mode))
            best = line.loc[line["samples_per_s"].idxmax()]
            ring = {"s": 170, "fc": "none", "ec": _MODES[mode], "lw": 1.4}
            ax.scatter([best["micro_batches"]], [best["samples_per_s"]], **ring)
        ax.set_xscale("log", base=2)
        ax.set_xticks(counts, [str(count) for count in counts])
        title = f"{where(table)}, {table['ranks'].max()} GPUs"
        ax.set(title=title, xlabel="micro-batches (log)", ylabel="samples/second")
        ax.minorticks_off()
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        ax.grid(axis="y")
    axes[0].scatter([], [], s=110, fc="none", ec=canvas.QUIET, label="best count")
    figure.set_size_inches(9.6 if len(tables) < 3 else 12.5, 4.0)
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, f"each panel has its own scale · {sources(*tables)}")


def memory_chart(table: pd.DataFrame) -> Figure:
    """Peak memory of every rank, a group of bars per setting, a panel per mode; rank 0 first."""
    modes = [mode for mode in _MODES if mode in set(table["mode"])]
    figure, axes = panels(len(modes) or 1, height=3.6)
    by = "ranks" if len(set(table["ranks"])) > 1 else "split"
    for ax, mode in zip(axes, modes, strict=False):
        ticks, at = {}, 0.0
        for setting, group in table[table["mode"] == mode].groupby(by, sort=False):
            ranks = group.sort_values("rank")
            places = [at + place for place in range(len(ranks))]
            ax.bar(places, ranks["peak_mib"] / 1024, color=_MODES[mode], width=0.86)
            for place, rank in zip(places, ranks["rank"], strict=True):
                ink = ink_on(_MODES[mode])
                ax.text(place, 0, f"{rank}\n", ha="center", va="bottom", fontsize=7.5, color=ink)
            ticks[at + (len(ranks) - 1) / 2] = f"{setting} GPUs" if by == "ranks" else str(setting)
            at += len(ranks) + 0.8
        ax.set(title=mode, ylabel="peak memory, GiB", xlabel="one bar per rank")
        ax.set_xticks(list(ticks), list(ticks.values()))
        ax.grid(axis="y")
    if not modes:
        axes[0].set(title="Memory", xlabel="rank", ylabel="GiB")
        axes[0].text(0.5, 0.5, "this run had no GPU memory to measure", ha="center", transform=axes[0].transAxes)
    return canvas.finish(figure, f"each panel has its own scale · {sources(table)}")


def bubble_chart(*tables: pd.DataFrame) -> Figure:
    """The bubble of each schedule by formula, simulated with measured stage times, and measured; a panel per run."""
    figure, axes = panels(len(tables), rows=max(map(len, tables)), row_height=0.56, width=11.5)
    for ax, table in zip(axes, tables, strict=True):
        steps = table.itertuples()
        names = [
            f"{NAMES[row.schedule]}\n{row.micro_batches} micro-batches, {units.seconds(row.step_ms / 1e3)}"
            for row in steps
        ]
        places = rows(ax, names)
        for origin, (color, marker, size, aside) in _BUBBLES.items():
            at = [place + aside for place in places]
            ax.scatter(100 * table[f"bubble_{origin}"], at, c=color, marker=marker, s=size, label=origin, zorder=3)
        ax.set(title=f"{where(table)}: step time, bubble", xlabel="bubble, % of the ranks' time")
        for line in range(1, len(table)):
            ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
    same_width(axes, 1.12)
    canvas.legend_above(axes[0], markerscale=0.7)
    return canvas.finish(figure, sources(*tables))


def splits_chart(*tables: pd.DataFrame) -> Figure:
    """Each split's step over the even split's: measured, and forecast from the even split's spans; a panel per run."""
    figure, axes = panels(len(tables), rows=max(map(len, tables)), row_height=0.5)
    for ax, table in zip(axes, tables, strict=True):
        even = fact(table, "even")
        places = rows(ax, list(table["split"]))
        spread = table["spread_step_ms"] / table.loc[table["split"] == even, "step_ms"].iloc[0]
        bars(ax, table["ratio"], color=canvas.MEASURED, spread=spread, label="measured")
        look = {"color": canvas.PREDICTED, "marker": "D", "s": 46, "zorder": 3, "label": "forecast"}
        ax.scatter(table["forecast_ratio"], places, **look)
        for place, ratio in zip(places, table["ratio"], strict=True):
            ax.text(0.06, place, units.times(ratio), va="center", fontsize=9, color=ink_on(canvas.MEASURED))
        ax.set(title=f"{where(table)}, {table['mode'].iloc[0]}", xlabel=f"times the step of {even}")
    same_width(axes, 1.22)
    canvas.legend_above(axes[0])
    return canvas.finish(figure, sources(*tables))
