"""Tables of lab 13 → figures: how epochs scale and what they are made of, what is exchanged, what is learnt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, is_recorded, where
from labkit.story import units
from lessons.scaling.theory import TRAININGS, YOURS, amdahl, gustafson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BATCHES = (canvas.SERIES[0], canvas.SERIES[2], canvas.SERIES[3], canvas.SERIES[4], canvas.SERIES[1])
_LAWS = {
    "strong": (amdahl, "Strong: batch over all GPUs"),
    "weak": (gustafson, "Weak: batch per GPU"),
}
_MARKERS = {"weak": "o", "strong": "s"}
# Of the axis: the measured marks of one number of GPUs are so far apart; published ones stand right of them, the
# prediction left.
_APART, _ASIDE = 0.03, 0.12
_PARTS = {  # of an epoch: what a rank does, waits for, sends
    "input": ("getting images", canvas.WAIT),
    "copy": ("host to device", "#882255"),
    "forward": ("forward", canvas.COMPUTE),
    "backward": ("backward", "#00405F"),  # as in lab 03
    "exposed": ("all-reduce, exposed", canvas.COMMUNICATE),
    "optimizer": ("optimizer", "#117733"),
}
_WAYS = {
    "steps": ("two step times", "o", canvas.SERIES[0]),
    "trace": ("the trace", "s", canvas.SERIES[2]),
    "hooks": ("hooks", "D", canvas.SERIES[3]),
}


def laws_chart() -> Figure:
    """Amdahl's and Gustafson's speed-ups for several serial shares, by arithmetic, up to 16 GPUs."""
    figure, shown = parts.panel_each(_LAWS.items(), height=3.9, sharey=True)
    gpus, counts = np.linspace(1, 16, 100), (1, 2, 4, 8, 16)
    for ax, (law, (speedup, title)) in shown:
        ax.plot(gpus, gpus, color=canvas.INK, lw=1, ls=canvas.DASHES, label="ideal")
        for share, color in zip((0.01, 0.05, 0.2), _BATCHES, strict=False):
            ax.plot(gpus, [speedup(share, count) for count in gpus], color=color, label=f"{100 * share:g} % serial")
        ax.set(title=title, xlabel="GPUs", xticks=counts, yticks=counts)
        ax.set_ylabel("speed-up, times one GPU" if law == "strong" else "")
        ax.grid(True)
    canvas.shared_legend(figure, figure.axes)
    return canvas.finish(figure, "theory: Amdahl (1967), Gustafson (1988)")


def scaling_chart(
    *pairs: tuple[pd.DataFrame, pd.DataFrame], published: pd.DataFrame | None = None, guess: Any = None
) -> Figure:
    """Speed-up against GPUs with whiskers, a panel per run: weak scaling as circles, strong as squares.

    Each pair is `scaling` and its `laws`, which are lines. `published` is `published_speedups`: triangles at what a
    report's own seconds mean, with their batch, for as many GPUs as the runs have. `guess` is a predicted efficiency in
    percent on two GPUs. Marks of one number of GPUs stand side by side. A run on CPUs has no panel beside one on GPUs:
    processes that share cores scale in another way.
    """
    pairs = parts.distinct(pairs)
    pairs = tuple(pair for pair in pairs if not fact(pair[0], "on_cpu")) or pairs
    counts = sorted({1}.union(*(table["ranks"] for table, _ in pairs)))
    most = counts[-1]
    figure, shown = parts.panel_each(pairs, height=4.4, sharex=True, sharey=True)
    for ax, (table, fits) in shown:
        _speedups(ax, table, fits, most)
        ax.set(title=where(table), xlabel="GPUs (small runs: processes)", xticks=counts)
        ax.grid(True)
    key, last, aside = shown[0][0], shown[-1][0], _ASIDE * (most - 1)
    key.set_ylabel("times one GPU's rate")
    if published is not None:
        printed = published[published["gpus"].between(2, most)]
        at = printed["gpus"] + aside
        last.plot(at, printed["true_speedup"], "^", color=canvas.PUBLISHED, ms=7, label="published, by batch")
        largest = printed["batch_per_gpu"].max()
        for x, row in zip(at, printed.itertuples(), strict=True) if most <= 4 else ():  # no label hides another
            look = {"xytext": (7, 5 if row.batch_per_gpu == largest else -4), "fontsize": 8}
            parts.beside(last, x, row.true_speedup, str(row.batch_per_gpu), color=canvas.QUIET, **look)
    parts.guess_mark(last, 2 - aside, guess, 1 / 50)
    series = {(law, fixed) for table, _ in pairs for law, fixed in zip(table["law"], table["fixed"], strict=True)}
    # The legend's order: the batches per GPU, those over all GPUs, then the lines.
    for law, fixed in sorted(series, key=lambda one: (one[0] == "strong", one[1])):
        name = f"weak, {fixed} per GPU" if law == "weak" else f"strong, {fixed} over all"
        key.errorbar([], [], [], color=_batch_color(fixed), marker=_MARKERS[law], ls="", label=name)
    key.plot([], [], color=canvas.INK, lw=1, ls=canvas.DASHES, label="ideal")
    if any(len(fits) for _, fits in pairs):
        key.plot([], [], color=canvas.QUIET, lw=1.2, label="fitted: Amdahl (strong), Gustafson (weak)")
    return parts.close(figure, *(table for table, _ in pairs), published, columns=4)


def _batch_color(fixed: Any) -> str:
    """Return a batch's colour, the same in all panels."""
    return _BATCHES[int(math.log2(int(fixed))) % len(_BATCHES)]


def _speedups(ax: Axes, table: pd.DataFrame, fits: pd.DataFrame, most: int) -> None:
    """Draw a run's points and fitted lines on two and more GPUs, a colour per batch."""
    gpus = np.linspace(1, most, 60)
    ax.plot(gpus, gpus, color=canvas.INK, lw=1, ls=canvas.DASHES)
    several = table[table["ranks"] > 1]
    if several.empty:
        ax.text(0.5, 0.5, "one GPU: nothing to compare", transform=ax.transAxes, ha="center", color=canvas.QUIET)
    lines = [*several.groupby(["law", "fixed"])]
    fitted = fits.set_index(["law", "fixed"])["share"].to_dict()
    for number, ((law, fixed), line) in enumerate(lines):
        color, speedup = _batch_color(fixed), _LAWS[law][0]
        at = line["ranks"] + _APART * (most - 1) * (number - (len(lines) - 1) / 2)
        look = {"color": color, "marker": _MARKERS[law], "ls": "", "capsize": 3}
        ax.errorbar(at, line["speedup"], yerr=line["spread_speedup"], **look)
        if (law, fixed) in fitted:
            ax.plot(gpus, [speedup(fitted[law, fixed], count) for count in gpus], color=color, lw=1.2)


def parts_chart(*tables: pd.DataFrame) -> Figure:
    """What a step is made of, in percent, by batch (smallest, largest), GPUs (fewest, most), loader; a panel per run.

    At a row's end: the ms of a step.
    """
    tables = parts.distinct(tables)
    ends = [_ends(table) for table in tables]
    figure, shown = parts.panel_each(ends, rows=max(map(len, ends)), row_height=0.32)
    for ax, table in shown:
        labels = [f"{row.ranks} × {row.gpu_batch}, {row.loader}" for row in table.itertuples()]
        places = parts.rows(ax, labels, fontsize=8.5)
        for place, row in zip(places, table.itertuples(), strict=True):
            ax.text(101, place, f"{units.number(1e3 * row.seconds / row.steps)} ms", va="center", fontsize=8)
        end: Any = 0.0
        for part, (name, color) in _PARTS.items():
            share = 100 * table[f"{part}_s"].clip(lower=0) / table["seconds"]
            end = parts.bars(ax, share, start=end, color=color, label=name)
        ax.set(title=f"{where(table)}: GPUs × images, loader", xlabel="% of a step", xlim=(0, 122))
    return parts.close(figure, *tables, note=parts.own_scales(shown), columns=6)


def _ends(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest and the largest batch on the fewest and the most ranks, the loaders together."""
    ranks = [table["ranks"].min(), table["ranks"].max()]
    batches = table.loc[table["ranks"] == ranks[0], "gpu_batch"]
    rows = table[table["ranks"].isin(ranks) & table["gpu_batch"].isin([batches.min(), batches.max()])]
    return rows.sort_values(["gpu_batch", "ranks", "loader"], ignore_index=True)


def ways_chart(*tables: pd.DataFrame) -> Figure:
    """What an all-reduce adds to a step, in percent of it, by three ways of measuring; a panel per run."""
    tables = parts.distinct(tables)
    figure, shown = parts.panel_each(tables, rows=max(map(len, tables)), row_height=0.62)
    for ax, table in shown:
        places = parts.rows(ax, [f"{row.ranks} × {row.gpu_batch}" for row in table.itertuples()])
        for aside, (way, (name, marker, color)) in zip((-0.28, 0.0, 0.28), _WAYS.items(), strict=True):
            at = [place + aside for place in places]
            look = {"color": color, "marker": marker, "ls": "", "ms": 6, "label": name}
            spread = f"spread_{way}_ms"  # of a trace there is none: it is one step
            whiskers = {"xerr": 100 * table[spread] / table["step_ms"], "capsize": 3} if spread in table else {}
            ax.errorbar(100 * table[f"{way}_share"], at, **look, **whiskers)
        ax.axvline(0, color=canvas.INK, lw=1)
        for line in range(1, len(table)):
            ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
        ax.set(title=f"{where(table)}: GPUs × images", xlabel="exposed all-reduce, % of a step")
    return parts.close(figure, *tables, note=parts.own_scales(shown))


def accuracy_chart(*tables: pd.DataFrame) -> Figure:
    """Accuracy on the test images after the last epoch, a dot per seed; a panel per run.

    Beside each: GPUs × images per GPU, and the steps in all.
    """
    names = [name for name in TRAININGS if any((table["variant"] == name).any() for table in tables)]
    figure, shown = parts.panel_each(parts.distinct(tables), rows=len(names), row_height=0.5)
    for ax, table in shown:
        rows = {row.variant: row for row in table.itertuples()}
        labels = [TRAININGS[name].replace("`", "") + _setting(rows.get(name)) for name in names]
        color = canvas.RECORDED if is_recorded(table) else canvas.MEASURED
        for place, name in zip(parts.rows(ax, labels, fontsize=8.5), names, strict=True):
            look = {"color": canvas.YOURS if name == YOURS else color, "mec": canvas.INK, "mew": 0.6, "ms": 6}
            percents = rows[name].percents if name in rows else []
            at = [place + 0.2 * (seed - (len(percents) - 1) / 2) for seed in range(len(percents))]
            label = "a seed" if place == 0 else "a seed, with your sampler" if name == YOURS and percents else None
            ax.plot(percents, at, "o", label=label, **look)
        ax.axvline(10, color=canvas.QUIET, lw=1, ls=(0, (2, 2)), label="guessing")
        ax.set(title=where(table), xlabel="right answers on test images, %", xlim=(0, 104))
        ax.set_xticks(range(0, 101, 20))
    return parts.close(figure, *tables)


def _setting(row: Any) -> str:
    return f"\n{row.ranks} × {row.gpu_batch}, {row.steps} steps" if row else "\nnot run"


def published_chart(table: pd.DataFrame) -> Figure:
    """A report's speed-ups per setting: as printed, and one GPU's seconds over those of the setting.

    Takes `published_speedups`.
    """
    figure, (ax,) = parts.panels(1, rows=len(table), row_height=0.34)
    places = parts.rows(ax, [f"{row.gpus} × {row.batch_per_gpu}" for row in table.itertuples()])
    ax.hlines(places, table["speedup_as_printed"], table["true_speedup"], color=canvas.HAIRLINE, lw=2)
    ax.plot(table["speedup_as_printed"], places, "^", color=canvas.PUBLISHED, ms=7, label="printed")
    ax.plot(table["true_speedup"], places, "o", color=canvas.INK, ms=7, label="one GPU's seconds over these")
    for place, row in zip(places, table.itertuples(), strict=True):
        ax.text(2.0, place, f"{units.seconds(row.epoch_seconds)} per epoch", va="center", fontsize=8)
    ax.set(title="GPUs × images per GPU: the report's speed-ups", xlabel="times as fast", xlim=(0.8, 2.3))
    ax.set_xticks([0.8 + 0.2 * step for step in range(6)])
    return parts.close(figure, table)
