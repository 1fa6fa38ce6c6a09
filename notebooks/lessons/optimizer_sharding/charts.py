"""Tables of lab 11 → figures: memory, balance, stages and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import sources, where
from labkit.theory.sizes import GB, MB, MIB
from lessons.optimizer_sharding.theory import EXCHANGES, KERNELS, OPTIMIZERS, STAGES, WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RULE_COLORS = {"by number": canvas.SERIES[5], "whole parameters": canvas.SERIES[1], "by elements": canvas.SERIES[2]}
_STAGE_COLORS = dict(zip(STAGES, (canvas.SERIES[number] for number in (0, 5, 2, 3, 1)), strict=True))
_STAGE_LOOKS: dict[str, Any] = {name: {"color": _STAGE_COLORS[name], "label": STAGES[name]} for name in STAGES}
_STAGE_LOOKS["zero1"]["ls"] = (0, (4, 3))  # as high as ours
# The table's items → the names that the whole workbook's ledgers use.
ITEMS = {item: item for item in ("parameters", "gradients", "states", "activations", "temporary")} | {
    "states": "optimizer"
}
MOMENTS = {"built": "building", "before update": "up to the update", "after update": "in the update"}
BAR, GAP = 0.74, 1.7  # a bar's height, and the room between two groups, in bars


def balance_chart(table: pd.DataFrame) -> Figure:
    """The fullest rank's elements over an equal part, by model and rule; a panel per number of ranks."""
    models, end = list(dict.fromkeys(table["model"])), 1.05 * (1 + table["excess"].max())
    by_ranks = table.groupby("ranks", sort=False)
    figure, shown = parts.panel_each(by_ranks, rows=len(models), row_height=0.55, sharey=True)
    for ax, (ranks, of_ranks) in shown:
        for number, (rule, color) in enumerate(_RULE_COLORS.items()):
            of_rule = of_ranks[of_ranks["rule"] == rule].set_index("model").loc[models]
            places = [place + 0.26 * (number - 1) for place in range(len(models))]
            ax.barh(places, 1 + of_rule["excess"], 0.24, color=color, label=rule)
        ax.axvline(1.05, color=canvas.INK, ls=(0, (2, 2)), lw=1, label="5 % more")
        ax.set(title=f"{ranks} ranks", xlabel="fullest rank, × equal parts", xlim=(0, end))
        parts.rows(ax, models)
    return parts.close(figure, table, columns=4)


def stages_chart(held: pd.DataFrame, sent: pd.DataFrame) -> Figure:
    """Left what a rank holds by the number of ranks, a line per stage; right what it sends per step.

    The right panel's unit is all parameters' bytes.
    """
    figure, (left, right) = canvas.canvas(2, height=3.9, width_ratios=(3, 2))
    parts.lines(left, held, "ranks", "held_gb", "stage", _STAGE_LOOKS, marker="o", ms=4)
    parts.knob_axis(left, held["ranks"], "ranks")
    left.set(title="Parameters, gradients and states", ylabel="GB per rank", ylim=(0, None))
    left.grid(axis="y")
    parts.rows(right, [STAGES[name] for name in sent["stage"]])
    parts.bars(right, sent["volume"], color=[_STAGE_COLORS[name] for name in sent["stage"]])
    right.set(title="Sent per step", xlabel="sent per rank:\nparameters' bytes × (N − 1)/N")
    return parts.close(figure, held, columns=6)


def memory_chart(*tables: pd.DataFrame) -> Figure:
    """Stacked bars by item of the second step's three periods, a bar per way; diamonds where the allocator saw peaks.

    A row of panels per run, a panel per kernel.
    """
    tables = parts.distinct(tables)
    kernels = list(dict.fromkeys(kernel for table in tables for kernel in table["kernel"]))
    ways = list(dict.fromkeys(way for table in tables for way in table["way"]))
    height = len(tables) * (1.3 + 0.25 * 3 * (len(ways) + GAP))
    figure, grid = canvas.canvas(len(kernels), len(tables), height=height, squeeze=False, sharey="row", sharex="row")
    for axes, table in zip(grid, tables, strict=True):
        shown = table[(table["step"] == table["step"].max()) | (table["moment"] == "built")]
        most, large = shown["predicted"].max() * MIB, (GB, "GB")
        scale, unit = large if most > 2 * GB else (MB, "MB")
        for ax, kernel in zip(axes, kernels, strict=True):
            rows = shown[shown["kernel"] == kernel]
            groups = [list(MOMENTS).index(moment) for moment in rows["moment"]]
            places = grouped_rows(ax, list(MOMENTS.values()), ways, groups, [ways.index(way) for way in rows["way"]])
            sizes = {name: rows[item].to_numpy() * MIB / scale for item, name in ITEMS.items()}
            ledgers.held_bars(ax, places, sizes, height=BAR)
            ledgers.peak_marks(ax, places, rows["peak"] * MIB / scale, size=26)
            ax.set(title=f"{where(table)}: {KERNELS[kernel]}", xlabel=f"most memory per rank, {unit}")
    return parts.close(figure, *tables, columns=7)


def grouped_rows(
    ax: Axes, headings: Sequence[str], ways: Sequence[str], groups: Sequence[int], ways_at: Sequence[int]
) -> list[float]:
    """Make the axes a row per way under each heading; return the places of bars by group and way, both as numbers."""
    step = len(ways) + GAP
    rows = [(number * step + row, WAYS[way]) for number in range(len(headings)) for row, way in enumerate(ways)]
    ax.set_yticks([place for place, _ in rows], [name for _, name in rows], fontsize=9)
    ax.set_ylim(rows[-1][0] + 0.6, -1.6)
    ax.grid(axis="x")
    for number, heading in enumerate(headings):
        ax.text(0, number * step - 0.75, heading, fontsize=9, style="italic", color=canvas.QUIET)
    return [number * step + row for number, row in zip(groups, ways_at, strict=True)]


_STEP = "#4C92C3"
_LEAST = "#F0E442"


def steps_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Two panels per run, a bar per way and optimizer: the update (own elements, what sending adds), the whole step.

    Strokes are the least time that memory's and the links' rates allow, one after the other. `guess` (ms, a number or a
    Prediction) is a line in the panels of updates.
    """
    tables = parts.distinct(tables)
    heights = [max(2.0, 1.2 + 0.24 * len(_settings(table)) * (table["way"].nunique() + GAP)) for table in tables]
    figure, grid = canvas.canvas(
        2, len(tables), height=0.4 + sum(heights), squeeze=False, sharey="row", height_ratios=heights
    )
    for (left, right), table in zip(grid, tables, strict=True):
        left.set(title=f"Update. {where(table)}", xlabel="update, ms")
        right.set(title="Whole step", xlabel="step, ms")
        if table.empty:
            for ax in (left, right):
                ax.text(0.5, 0.5, "no setting is complete", ha="center", color=canvas.QUIET, transform=ax.transAxes)
            continue
        _updates_and_steps(left, right, table)
        parts.guess_line(left, guess)
    return parts.close(figure, *tables, columns=4)


def exchange_chart(table: pd.DataFrame) -> Figure:
    """A bar per way, a student's in its own colour: ms from each rank's gradients to new weights on all ranks."""
    figure, ax = canvas.canvas(1, height=1.2 + 0.55 * len(table))
    yours = table["way"].str.startswith("your_")
    parts.rows(ax, [f"{WAYS[way]}:\n{EXCHANGES[way]}" for way in table["way"]])
    ms, spread = table["ms"].fillna(0.0), table["spread_ms"].fillna(0.0)
    parts.bars(ax, ms, color=yours.map({True: canvas.YOURS, False: _STEP}), spread=spread)
    for place, row in enumerate(table.itertuples()):
        if row.status != "ok":
            ax.text(0, place, f" {row.status}", va="center", fontsize=9)
    ax.set(title=f"{where(table)}: SGD with momentum", xlabel="from each rank's gradients to new weights, ms")
    return canvas.finish(figure, sources(table))


def _settings(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(table["optimizer"], table["kernel"], strict=True)))


def _updates_and_steps(left: Axes, right: Axes, table: pd.DataFrame) -> None:
    settings, ways = _settings(table), list(dict.fromkeys(table["way"]))
    groups = [settings.index(setting) for setting in zip(table["optimizer"], table["kernel"], strict=True)]
    headings = [f"{OPTIMIZERS[optimizer]}, {KERNELS[kernel]}" for optimizer, kernel in settings]
    for ax in (left, right):
        places = grouped_rows(ax, headings, ways, groups, [ways.index(way) for way in table["way"]])
    _updates(left, table, places)
    right.barh(places, table["step_ms"], color=_STEP, height=BAR, label="whole step")
    _whiskers(right, table["step_ms"], places, table["spread_step_ms"])


def _updates(ax: Axes, table: pd.DataFrame, places: list[float]) -> None:
    """Draw the update of own elements, what sending adds to it, and the least of both."""
    local = table["local_ms"].clip(upper=table["update_ms"])
    ax.barh(places, local, color=canvas.COMPUTE, height=BAR, label="update of own elements")
    exposed: dict[str, Any] = {"color": canvas.COMMUNICATE, "label": "sending that nothing hides"}
    ax.barh(places, table["update_ms"] - local, left=local, height=BAR, **exposed)
    _whiskers(ax, table["update_ms"], places, table["spread_update_ms"])
    if table["least_local_ms"].notna().any():
        for name, sent, color in (("least to update", 0, _LEAST), ("least, sending after it", 1, canvas.INK)):
            drawn = (table["least_sent_ms"] > 0) | (sent == 0)  # an update that sends nothing has one least time
            least = (table["least_local_ms"] + sent * table["least_sent_ms"]).where(drawn)
            ax.scatter(least, places, marker="|", s=110, zorder=3, color=color, lw=2.2, label=name)


def _whiskers(ax: Axes, ends: pd.Series, places: list[float], spread: pd.Series) -> None:
    below = spread.clip(upper=ends)  # no time is less than none
    ax.errorbar(ends, places, xerr=[below, spread], ls="", color=canvas.INK, capsize=2, lw=1)
