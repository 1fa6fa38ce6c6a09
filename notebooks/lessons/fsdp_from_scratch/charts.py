"""Tables of lab 15 → figures: what is whole when, a step's memory, time and memory by unit, and what tokens hide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import fact, fact_or, sources, where
from labkit.story import units
from lessons.fsdp_from_scratch.theory import ITEMS, STRATEGIES, held_over_time, setting_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = {
    "alone": canvas.IDLE,
    "ddp": canvas.SERIES[3],
    "torch": canvas.SERIES[5],
    "ours": canvas.COMMUNICATE,
    "yours": canvas.YOURS,
}


def whole_chart(count: int, prefetch: int = 1) -> Figure:
    """Computed: how many of `count` units are whole while each one computes, forward and then backward."""
    figure, ax = canvas.canvas(height=3.2)
    ways = {
        "kept whole until backward": (held_over_time(count, 1, 0, release=False), canvas.SERIES[3]),
        "released immediately": (held_over_time(count, 1, 0), canvas.SERIES[0]),
        f"released, and {prefetch} gathered ahead": (held_over_time(count, 1, prefetch), canvas.COMMUNICATE),
    }
    for name, (held, color) in ways.items():
        ax.step(range(len(held) + 1), [*held, held[-1]], where="post", color=color, lw=2, label=name)
    ax.axhline(count, color=canvas.INK, ls=canvas.DASHES, lw=1.2, label="replicated (DDP)")
    ax.axvline(count, color=canvas.QUIET, lw=0.8)
    numbers = [*range(1, count + 1), *range(count, 0, -1)]
    ax.set_xticks([place + 0.5 for place in range(2 * count)], [str(number) for number in numbers], fontsize=8)
    ax.set(xlim=(0, 2 * count), ylim=(0, 1.1 * count), ylabel="units that are whole", title="Forward, then backward")
    ax.set_xlabel("the unit that computes")
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, f"theory: {count} units, the outermost one left out")


def timeline_chart(*runs: Sequence[pd.DataFrame]) -> Figure:
    """The memory of one steady step by kind: a row of panels per run, a panel per setting; one scale a run.

    Takes lists of `timelines`.
    """
    runs = parts.distinct(runs)
    columns = max(map(len, runs))
    figure, grid = canvas.canvas(
        columns, len(runs), width=11.5, height=0.6 + 3.0 * len(runs), squeeze=False, sharey="row"
    )
    names = {"base": "shards and states", "activations": "activations, units kept whole"}
    for axes, tables in zip(grid, runs, strict=True):
        scale, unit = ledgers.memory_unit(max(table["allocated_mib"].max() for table in tables))
        for ax, table in zip(axes, tables, strict=False):
            ledgers.memory_layers(ax, table, scale, names)
            way = f"released, {fact(table, 'prefetch')} ahead" if fact(table, "release") else "kept whole"
            ax.set(title=f"{where(table)}:\n{way}", xlabel="ms")
        top = max(table[["reserved_mib", "allocated_mib"]].max(axis=None) for table in tables) / scale
        axes[0].set_ylabel(unit)
        axes[0].set_ylim(0, 1.2 * top)  # the phases' names stand above the line of what is reserved
    canvas.shared_legend(figure, list(grid.flat), columns=5)
    return canvas.finish(figure, sources(*(tables[0] for tables in runs)))


def steps_chart(*tables: pd.DataFrame, precision: str = "bfloat16") -> Figure:
    """Two panels per run, a row per setting: the step, and what a rank holds at most by formula, with its peak."""
    shown = [table[table["precision"] == precision].reset_index(drop=True) for table in parts.distinct(tables)]
    height = 0.8 + sum(1.3 + 0.36 * len(table) for table in shown)
    figure, grid = canvas.canvas(2, len(shown), width=11.5, height=height, squeeze=False, sharey="row")
    for (left, right), table in zip(grid, shown, strict=True):
        places = parts.rows(left, [setting_name(row) for row in table.itertuples()], fontsize=9)
        parts.bars(
            left,
            table["step_ms"].fillna(0),
            color=[_COLORS[name] for name in table["strategy"]],
            spread=table["spread_step_ms"],
        )
        alone = table.loc[table["strategy"] == "alone", "step_ms"]
        for step_ms in alone.dropna():
            left.axvline(step_ms, color=canvas.INK, lw=1.2, ls=canvas.DASHES, label="nothing sent")
        for place, row in zip(places, table.itertuples(), strict=True):
            text = f"{units.number(row.step_ms)}" if row.status == "ok" else row.status
            parts.beside(left, row.step_ms + row.spread_step_ms if row.status == "ok" else 0, place, text)
        left.set(
            title=f"{where(table)}: the step",
            xlabel="ms",
            xlim=(0, 1.15 * (table["step_ms"] + table["spread_step_ms"]).max()),
        )
        scale, unit = ledgers.memory_unit(table["predicted"].max())
        ledgers.held_bars(right, [*places], {item: table[item] / scale for item in ITEMS if table[item].any()})
        ledgers.peak_marks(right, [*places], table["peak"] / scale)
        right.grid(axis="x")
        right.set(title="Memory of a rank, by formula", xlabel=f"peak, {unit}")
    canvas.shared_legend(figure, list(grid.flat), columns=4)
    return canvas.finish(figure, f"{precision} · {sources(*shown)}")


def hiding_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """By how much a step is longer than with nothing sent, by tokens; a panel per run, with the formula's limit."""
    tables = parts.distinct(tables)
    figure, axes = parts.panels(len(tables), height=4.0)
    looks = canvas.looks(("ours", "torch"), (canvas.COMMUNICATE, canvas.SERIES[5]))
    for ax, table in zip(axes, tables, strict=True):
        for strategy, rows in table[table["strategy"] != "alone"].groupby("strategy", sort=False):
            spread = 100 * rows["spread_longer_share"]
            ax.errorbar(
                rows["tokens"],
                100 * rows["longer_share"],
                yerr=spread,
                capsize=3,
                label=STRATEGIES[strategy],
                **looks[strategy],
            )
        ax.axhline(0, color=canvas.INK, lw=0.8)
        if (tokens := fact(table, "hidden_from")) == tokens:
            ax.axvline(tokens, color=canvas.THEORY, ls=canvas.DASHES, lw=1.3, label="hidden from here on, by formula")
        canvas.logarithmic(ax.xaxis)
        counts = sorted(set(table["tokens"]))
        ax.set_xticks(counts, [units.count(count) for count in counts])
        ax.minorticks_off()
        ax.set(title=where(table), xlabel="tokens per rank and step (log)", ylabel="longer than nothing sent, %")
        ax.grid(axis="y")
    if not fact_or(tables[-1], "on_cpu", False):
        parts.guess_line(axes[-1], guess)
    canvas.shared_legend(figure, axes, columns=4)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables))
