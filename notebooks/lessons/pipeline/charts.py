"""Tables of lab 03 → figures: timelines with a lane per rank, curves, bars; this run first, then the recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import ink_on
from labkit.charts.parts import distinct, own_scales, panel_each, rows, workers
from labkit.provenance import fact, fact_or, run_name, sources
from labkit.story import units
from labkit.story.words import listed
from lessons.pipeline.theory.schedules import SCHEDULE_NAMES, layers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Forward is what the whole workbook calls compute; the backward's parts are darker, so that the two stay one family.
COLORS = {
    "F": canvas.COMPUTE,
    "B": "#00405F",
    "I": "#33627D",
    "W": "#8DB7CE",
    "U": "#009E73",
    "T": canvas.COMMUNICATE,
    "wait": canvas.WAIT,
}
WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "input's gradient",
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
        look = {"height": 0.34 if kind == "wait" else 0.8, "color": COLORS[kind]}
        look |= {"edgecolor": "white", "linewidth": 0 if kind in ("T", "wait") else 0.4}
        ax.barh(spans["rank"], spans["end_ms"] - spans["start_ms"], left=spans["start_ms"], **look)
    numbered = table[table["kind"].isin(["F", "B", "I"]) & (table["end_ms"] - table["start_ms"] > _WIDE * end)]
    for span in numbered.itertuples():
        inside = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink_on(COLORS[span.kind])}
        ax.text((span.start_ms + span.end_ms) / 2, span.rank, span.micro_batch, **inside)
    ax.set_xlim(0, end)
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelsize=8)


def words_used(*tables: pd.DataFrame) -> dict[str, str]:
    """The names of the tables' spans, and their colours."""
    return {WORDS[kind]: COLORS[kind] for kind in COLORS if any((table["kind"] == kind).any() for table in tables)}


def timelines_chart(*tables: pd.DataFrame) -> Figure:
    """Timelines under one another; those of one run, or of no run, share an axis. Takes `gantt`s and `ideal`s."""
    tables = distinct(tables, "schedule", "mode", "ranks", "split", "micro_batches", "way", "knobs")
    ranks = [table["rank"].nunique() for table in tables]
    figure, axes = canvas.canvas(1, len(tables), height=1.2 + 0.62 * len(tables) + 0.21 * sum(ranks), squeeze=False)
    groups = [fact(table, "source") for table in tables]
    for place, (ax, table) in enumerate(zip(axes[:, 0], tables, strict=True)):
        ends = [spans["end_ms"].max() for spans, group in zip(tables, groups, strict=True) if group == groups[place]]
        _lanes(ax, table, 1.01 * max(ends))
        ax.set_title(_timeline_title(table), fontsize=10)
        if groups[place + 1 : place + 2] != [groups[place]]:
            measured = fact_or(table, "way", None)
            ax.set_xlabel("ms since all ranks were ready" if measured else "times one rank's forward of a micro-batch")
        else:
            ax.tick_params(axis="x", labelbottom=False)
    parts.swatches(axes[0, 0], words_used(*tables))
    return parts.close(figure, *tables, note=_drawn_of_logged(tables), columns=7)


def _drawn_of_logged(tables: Sequence[pd.DataFrame]) -> str:
    """Return which step a measured timeline shows where several were logged."""
    counts = {fact(table, "logged") for table in tables if fact_or(table, "way", None) == "measured"}
    return f"measured: the last of {max(counts)} logged steps · " if max(counts, default=1) > 1 else ""


def kept_micro_batches(table: pd.DataFrame) -> str:
    """Return how many micro-batches the ranks of an `ideal` keep at most: one number if it is the same for all."""
    kept = list(dict.fromkeys(f"{share:.2g}" for share in fact(table, "in_flight")))
    counts = listed(kept if len(kept) == 1 else [f"{share:.2g}" for share in fact(table, "in_flight")])
    return f"{'each rank keeps' if len(kept) == 1 else 'ranks keep'} activations of {counts} micro-batches"


def _timeline_title(table: pd.DataFrame) -> str:
    """Return whose timeline it is, and its bubble."""
    schedule, bubble = NAMES[fact(table, "schedule")], f"bubble {units.percent(fact(table, 'bubble'))}"
    way = fact_or(table, "way", None)
    if way is None:
        return f"{schedule}: {bubble}, {kept_micro_batches(table)}"
    lasts = f"{units.seconds(fact(table, 'length_ms') / 1e3)}, {bubble}"
    if way != "measured":
        return f"Simulated, {way}: {lasts}"
    stages = len(layers_of(fact(table, "split")))
    setting = f"{schedule}, {stages} stages, {fact(table, 'micro_batches')} micro-batches"
    steps = fact(table, "logged")
    measured = "measured" if steps == 1 else f"one of {steps} measured steps"
    return f"{_whose(table)}: {setting}, {measured}: {lasts}"


def _whose(table: pd.DataFrame) -> str:
    """Return "This run, 2 CPU processes", "This run, middle size, 2 GPUs" or "Recorded run, 4 GPUs"."""
    ranks = fact(table, "ranks") if "ranks" not in table else table["ranks"].max()
    size = ", middle size" if fact_or(table, "middle", False) else ""
    return f"{run_name(table)}{size}, {ranks} {workers(table)}"


def _of_runs(here: pd.DataFrame, recorded: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the tables to draw, a panel each: one where this run is the recorded one, or measured nothing."""
    return list(distinct((None if here.empty else here, recorded)))


_MODES = {"streaming": canvas.SERIES[0], "fenced": canvas.SERIES[2], "training": canvas.SERIES[5]}
_LOOKS: dict[str, Any] = {mode: {"color": color} for mode, color in _MODES.items()}
_BUBBLES = {  # colour, marker, its size, and how many rows aside, so that all show
    "formula": (canvas.THEORY, "|", 110, -0.27),
    "simulated": (canvas.QUIET, "D", 46, 0.0),
    "measured": (canvas.INK, "o", 60, 0.27),
}
_FAR_BELOW = 0.1  # of the largest published rate
_ASIDE = 0.09  # of a rank: published rates stand right of the measured dots, the prediction left of them
_LIMIT: dict[str, Any] = {"ls": canvas.DASHES, "lw": 1.1}


def gpus_chart(here: pd.DataFrame, recorded: pd.DataFrame, published: pd.DataFrame, guess: Any = None) -> Figure:
    """Samples per second against ranks, a line per mode, the mode's limit dashed; takes `speedups`s.

    Published rates and the reader's `guess` (4 GPUs, streaming) stand in the recorded run's panel. Far lower ones, of a
    report whose program counts steps, are drawn as samples.
    """
    tables = _of_runs(here, recorded)
    figure, shown = panel_each(tables, height=4.0)
    for ax, table in shown:
        alone = table.groupby("mode")["samples_per_s"].transform(lambda rates: rates.iloc[0])
        _curves(ax, table, "ranks")
        limit = table.assign(most=alone * table["limit"])
        parts.lines(ax, limit, "ranks", "most", "mode", _LOOKS, label=None, **_LIMIT)
        ax.set(title=_whose(table), xlabel="ranks in the pipeline", ylabel="samples/second")
        ax.set_xticks(sorted(set(table["ranks"])))
        ax.grid(axis="y")
    last = figure.axes[-1]
    reported = published[published["gpus"].isin(recorded["ranks"])]
    rates = reported["samples_per_second"]
    steps = rates < _FAR_BELOW * rates.max()
    look: dict[str, Any] = {"edgecolors": canvas.PUBLISHED, "marker": "^", "zorder": 3, "clip_on": False}
    samples, at = fact(recorded, "batch") * rates[steps], reported["gpus"] + _ASIDE
    last.scatter(at[~steps], rates[~steps], facecolors=canvas.PUBLISHED, label="published, samples/s", **look)
    last.scatter(at[steps], samples, facecolors="none", label="published, steps/s × 64", **look)
    parts.guess_mark(last, 4 - _ASIDE, guess)
    last.plot([], [], color=canvas.QUIET, label="limit of the mode", **_LIMIT)
    for ax in figure.axes:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    return parts.close(figure, *tables, published, note=own_scales(shown), columns=4)


def _curves(ax: Axes, table: pd.DataFrame, knob: str) -> None:
    """Draw samples per second against a knob, a line per mode, with whiskers for the spread."""
    parts.lines(ax, table, knob, "samples_per_s", "mode", _LOOKS, spread="spread_samples_per_s", marker="o")


def micro_batch_curve(here: pd.DataFrame, recorded: pd.DataFrame) -> Figure:
    """Samples per second against micro-batches, a line per mode, its best count ringed; takes `throughput`s."""
    tables = _of_runs(here, recorded)
    figure, shown = panel_each(tables, height=4.0)
    for ax, table in shown:
        rates = table[table["samples_per_s"].notna()]
        _curves(ax, rates, "micro_batches")
        best = rates.loc[rates.groupby("mode", sort=False)["samples_per_s"].idxmax()]
        ax.scatter(best["micro_batches"], best["samples_per_s"], s=170, fc="none", ec=best["mode"].map(_MODES), lw=1.4)
        parts.knob_axis(ax, table["micro_batches"], "micro-batches")
        ax.set(title=_whose(table), ylabel="samples/second", ylim=(0, 1.1 * ax.get_ylim()[1]))
        ax.grid(axis="y")
    figure.axes[0].scatter([], [], s=110, fc="none", ec=canvas.QUIET, label="best count")
    return parts.close(figure, *tables, note=own_scales(shown))


def memory_chart(here: pd.DataFrame, recorded: pd.DataFrame) -> Figure:
    """Peak memory of every rank in training, a group of bars per number of ranks, a stream's in front of it."""
    tables = _of_runs(here, recorded)
    figure, shown = panel_each(tables, height=3.6)
    for ax, table in shown:
        ticks, first = {}, 0.0
        for ranks, group in table.groupby("ranks"):
            for mode, width in (("training", 0.86), ("streaming", 0.5)):
                of_mode = group[group["mode"] == mode].sort_values("rank")
                look = {"color": _MODES[mode], "label": mode if not first else None}
                ax.bar(first + of_mode["rank"], of_mode["peak_mib"] / 1024, width=width, **look)
            ticks |= {first + rank: str(rank) for rank in range(ranks)}
            ax.text(first + (ranks - 1) / 2, 1.01, f"{ranks} ranks", ha="center", transform=ax.get_xaxis_transform())
            first += ranks + 0.8
        ax.set_title(_whose(table), pad=20)
        ax.set(ylabel="peak memory, GiB", xlabel="rank")
        ax.set_xticks(list(ticks), list(ticks.values()))
        ax.grid(axis="y")
    return parts.close(figure, *tables, note=own_scales(shown))


def bubble_chart(here: pd.DataFrame, recorded: pd.DataFrame) -> Figure:
    """The bubble of each schedule by formula, simulated with measured stage times, and measured; `predictions`s."""
    tables = _of_runs(here, recorded)
    figure, shown = panel_each(tables, rows=max(map(len, tables)), row_height=0.56, width=11.5)
    for ax, table in shown:
        names = [f"{NAMES[row.schedule]}\nlogged, {units.seconds(row.logged_ms / 1e3)}" for row in table.itertuples()]
        places = rows(ax, names)
        for origin, (color, marker, size, aside) in _BUBBLES.items():
            at = [place + aside for place in places]
            ax.scatter(100 * table[f"bubble_{origin}"], at, c=color, marker=marker, s=size, label=origin, zorder=3)
        count = table["micro_batches"].iloc[0]
        ax.set(title=f"{_whose(table)}, {count} micro-batches", xlabel="bubble, % of the ranks' time")
        for line in range(1, len(table)):
            ax.axhline(line - 0.5, color=canvas.HAIRLINE, lw=1)
    end = max(1.0, *(ax.get_xlim()[1] for ax, _ in shown))  # one scale from zero: the panels are compared
    for ax, _ in shown:
        ax.set_xlim(0, 1.12 * end)
    canvas.legend_above(shown[0][0], markerscale=0.7)
    return canvas.finish(figure, sources(*tables))
