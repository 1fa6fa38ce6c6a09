"""Tables of lab 17 → figures: this run first, the recorded one beside it or, where both have one size, behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import fact, run_name, sources, where
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FASTER, _SLOWER = canvas.SERIES[2], canvas.SERIES[5]
_HELD = {"weights_gib": "weights and states", "blocks_gib": "activations of blocks", "logits_gib": "logits"}


def waterfall_chart(*tables: pd.DataFrame, published: float | None = None, guess: Any = None) -> Figure:
    """A bar per rung, from where the one before ended, with its factor; grey where it is not resolved; a panel per run.

    `guess` is a number or a Prediction.
    """
    from matplotlib.ticker import MaxNLocator

    guess = parts.guessed(guess)
    tables = parts.distinct(tables)
    figure, axes = parts.panels(len(tables), rows=max(len(table) for table in tables))
    for ax, table in zip(axes, tables, strict=True):
        named = ax is axes[0] or list(table["knob"]) != list(tables[0]["knob"])
        parts.rows(ax, list(table["knob"]) if named else [""] * len(table))
        _rungs(ax, table, table["tokens_per_s"], table["spread_tokens_per_s"].fillna(0.0))
        if ax is axes[-1]:
            if published is not None:
                ax.axvline(published, color=canvas.PUBLISHED, ls=canvas.DASHES, lw=1.4, label="published")
            parts.guess_line(ax, guess)
        ax.set(title=where(table), xlabel="tokens/second")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(lambda value, _: units.count(value))
        lines = (published or 0, guess or 0) if ax is axes[-1] else (0,)
        ax.set_xlim(0, 1.22 * max(table["tokens_per_s"].max(), *lines))
    colors = {"first": canvas.MEASURED, "faster": _FASTER, "slower": _SLOWER, "within noise": canvas.IDLE}
    parts.swatches(axes[0], colors)
    canvas.shared_legend(figure, axes[::-1], columns=6)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables))


def _rungs(ax: Axes, table: pd.DataFrame, rates: pd.Series, spreads: pd.Series) -> None:
    """Draw each rung's change and its factor; a rung without a rate has its status instead."""
    before, unsure = rates.ffill().shift().fillna(0.0), spreads + spreads.shift().fillna(0.0)
    for place, row in enumerate(table.itertuples()):
        rate, start = rates.iloc[place], before.iloc[place]
        if pd.isna(rate):
            parts.beside(ax, 0, place, str(row.status))
            continue
        first = pd.isna(row.times_previous)
        color = canvas.MEASURED if first else _FASTER if rate >= start else _SLOWER
        resolved = first or abs(rate - start) > unsure.iloc[place]
        ax.barh(place, rate - start, left=start, color=color if resolved else canvas.IDLE, height=parts.BAR)
        if abs(rate - start) < 0.01 * rates.max():  # too thin a bar to be seen
            ax.plot([rate], [place], "|", ms=16, mew=2, color=color if resolved else canvas.IDLE)
        factor = units.number(rate) if first else f"{units.number(row.times_previous)}×"
        room = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line for a given rate may pass there
        parts.beside(ax, max(rate, start), place, factor, bbox=room)


def held_chart(table: pd.DataFrame) -> Figure:
    """Computed: what a step holds, a bar per number of sequences; takes `held`."""
    figure, ax = canvas.canvas(1, width=8.0, height=1.5 + 0.42 * len(table))
    parts.rows(ax, [f"{count} sequence{'s' * (count > 1)}" for count in table["sequences"]])
    end = 0 * table["weights_gib"]
    for color, (column, label) in zip(canvas.SERIES, _HELD.items(), strict=False):
        end = parts.bars(ax, table[column], start=end, color=color, label=label)
    for place, row in enumerate(table.itertuples()):
        share = units.percent(row.logits_gib / end.iloc[place])
        parts.beside(ax, end.iloc[place], place, f"{units.number(end.iloc[place])} GiB, {share} logits")
    ax.set(title="Computed", xlabel="GiB where backward starts", xlim=(0, 1.35 * end.max()))
    ax.grid(axis="x")
    return parts.close(figure, table)


def batches_chart(here: pd.DataFrame | None, recorded: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Tokens per second, and memory beside its ledger, against the micro-batch; a cross where it did not fit.

    `published` is drawn with the recorded run.
    """
    shown = parts.run_panels(here, recorded)
    figure, axes = canvas.canvas(2, len(shown), squeeze=False, width=11.5, height=0.6 + 3.1 * len(shown))
    for (left, right), layers in zip(axes, shown, strict=True):
        scale, unit = ledgers.memory_unit(max(layer.table["predicted_mib"].max() for layer in layers), 4096)
        for layer in layers:
            _batches_layer(left, right, layer, scale)
        if published is not None and any(layer.recorded for layer in layers):
            printed = published[published["tokens_per_second"] != "OOM"].astype({"tokens_per_second": float})
            style = {"color": canvas.PUBLISHED, "label": "published (H100)"}
            left.plot(printed["batch"], printed["tokens_per_second"], "^", **style)
        table = layers[-1].table
        for ax, title, label in ((left, "Rate", "tokens/second"), (right, "Peak memory", f"{unit} of one rank")):
            parts.knob_axis(ax, table["micro_batch"], "sequences simultaneously")
            ax.set(title=f"{title}, {_place(table)}", ylabel=label)
            ax.yaxis.set_major_formatter(lambda value, _: units.count(value) if value == int(value) else f"{value:g}")
            ax.set_ylim(0, 1.12 * ax.get_ylim()[1])
            ax.grid(axis="y")
    axes[-1, 0].plot([], [], color=canvas.THEORY, marker="|", label="ledger")
    return parts.close(figure, here, recorded, published, note=parts.own_scales(shown))


def _batches_layer(left: Axes, right: Axes, layer: parts.Layer, scale: float) -> None:
    """Draw a run's rates on the left and its peaks on the right; the ledger once, for the run in front."""
    table = layer.table
    fits = table[table["tokens_per_s"].notna()]
    style = {"marker": "o", "capsize": 3, "color": layer.color, "label": layer.label}
    left.errorbar(fits["micro_batch"], fits["tokens_per_s"], yerr=fits["spread_tokens_per_s"], **style)
    right.plot(table["micro_batch"], table["peak_mib"] / scale, "o", color=layer.color)
    if layer.behind:
        return
    right.plot(table["micro_batch"], table["predicted_mib"] / scale, color=canvas.THEORY, marker="|", zorder=1)
    for row in table[table["tokens_per_s"].isna()].itertuples():
        at = (row.micro_batch, row.predicted_mib / scale)
        right.plot(*at, "X", ms=10, color=canvas.SERIES[5])
        parts.beside(right, *at, row.status, ha="right", xytext=(-8, 0))


def _place(table: pd.DataFrame) -> str:
    """Return whose run a panel shows, and where: "recorded run on one GPU"."""
    return f"{run_name(table).lower()} on one {'CPU process' if fact(table, 'small') else 'GPU'}"
