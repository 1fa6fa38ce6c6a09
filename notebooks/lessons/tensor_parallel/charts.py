"""Tables of lab 16 → figures: the share of sending by width, computed and measured, and steps of the same batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.tensor_parallel.theory import HELD, STRATEGIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = {
    "ddp": canvas.SERIES[3],
    "fsdp": canvas.SERIES[5],
    "torch": canvas.SERIES[4],
    "tensor": canvas.COMMUNICATE,
    "sequence": canvas.SERIES[6],
    "yours": canvas.YOURS,
}


def split_chart(ranks: int = 2) -> Figure:
    """Drawn: two matrices that follow each other, the first by columns and the second by rows, a colour per rank."""
    figure, ax = canvas.canvas(height=2.6)
    x = 0.0
    for name, wide, high, cut in _DRAWN:
        for rank in range(ranks):
            color, box = canvas.SERIES[rank], [x, -high / 2, wide, high]
            if cut == "columns":
                box = [x + rank * wide / ranks, -high / 2, wide / ranks, high]
            elif cut == "rows":
                box = [x, high / 2 - (rank + 1) * high / ranks, wide, high / ranks]
            elif cut == "parts":
                box = [x + rank * (wide + 0.5), -high / 2, wide, high]
            _box(ax, box, canvas.IDLE if not cut else color)
        end = x + (wide if cut != "parts" else ranks * wide + 0.5 * (ranks - 1))
        ax.text((x + end) / 2, -1.75, name, ha="center", fontsize=9)
        x = end + 0.7
    ax.set(xlim=(-0.2, x), ylim=(-2, 1.6), title=f"Two products on {ranks} ranks, and one sum")
    ax.set_axis_off()
    parts.swatches(ax, {f"rank {rank}": canvas.SERIES[rank] for rank in range(ranks)} | {"every rank": canvas.IDLE})
    canvas.legend_above(ax)
    return canvas.finish(figure, "drawn: columns of A, rows of B")


_DRAWN = (  # name, width, height, how it is split
    ("X", 1.0, 1.2, ""),
    ("A", 2.4, 1.0, "columns"),
    ("f(XA)", 2.4, 1.2, "columns"),
    ("B", 1.0, 2.4, "rows"),
    ("parts of Y", 1.0, 1.2, "parts"),
    ("Y, their sum", 1.0, 1.2, ""),
)


def _box(ax: Axes, box: list[float], color: str) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((box[0], box[1]), box[2], box[3], facecolor=color, edgecolor="white", linewidth=1.5))


def shares_chart(*tables: pd.DataFrame) -> Figure:
    """Computed: the share of a step that is sending, by width, a line per number of ranks; a panel per table."""
    figure, shown = parts.panel_each(tables, height=3.4, sharey=True)
    for ax, table in shown:
        looks = canvas.looks(dict.fromkeys(table["ranks"]))
        named = {ranks: look | {"label": f"{ranks} GPUs"} for ranks, look in looks.items()}
        parts.lines(ax, table, "width", "share_percent", "ranks", named)
        parts.knob_axis(ax, table["width"], "width of the model", units.count)
        ax.set(ylim=(0, 100), title=f"A link of {fact(table, 'gb_per_s'):g} GB/s")
        ax.grid(axis="y")
    shown[0][0].set_ylabel("sending, % of the step")
    return parts.close(figure, *tables)


_LOOKS = {
    name: look | {"label": STRATEGIES[name]}
    for name, look in canvas.looks(("tensor", "sequence"), (canvas.COMMUNICATE, canvas.SERIES[6])).items()
}


def widths_chart(*tables: pd.DataFrame) -> Figure:
    """By how much sending makes forward and backward longer, by width; a panel per run, with the formula's line."""
    tables = parts.distinct(tables)
    figure, shown = parts.panel_each(tables, height=4.0)
    for ax, table in shown:
        parts.lines(ax, table, "hidden", "longer_percent", "strategy", _LOOKS, spread="spread_longer_percent")
        if table["by_formula"].notna().any():
            line = table.drop_duplicates("hidden")
            style = {"color": canvas.THEORY, "ls": canvas.DASHES, "lw": 1.3, "label": "by formula"}
            ax.plot(line["hidden"], 100 * line["by_formula"], **style)
        ax.axhline(0, color=canvas.INK, lw=0.8)
        parts.knob_axis(ax, table["hidden"], "width of the model", units.count)
        ax.set(title=where(table), ylabel="longer than nothing sent, %")
        ax.grid(axis="y")
    return parts.close(figure, *tables, note=parts.own_scales([ax for ax, _ in shown]))


def steps_chart(*tables: pd.DataFrame) -> Figure:
    """Two panels per run, a row per strategy: tokens per second of all GPUs, and what a rank's tensors hold."""
    tables = parts.distinct(tables)
    height = 0.6 + sum(1.2 + 0.38 * len(table) for table in tables)
    figure, grid = canvas.canvas(2, len(tables), width=11.0, height=height, squeeze=False, sharey="row")
    for (left, right), table in zip(grid, tables, strict=True):
        places = parts.rows(left, [STRATEGIES.get(name, "yours") for name in table["strategy"]])
        colors = [_COLORS[name] for name in table["strategy"]]
        spread = table["tokens_per_s"] * table["spread_step_ms"] / table["step_ms"]
        parts.bars(left, table["tokens_per_s"].fillna(0), color=colors, spread=spread)
        for place, row, more in zip(places, table.itertuples(), spread, strict=True):
            text = units.count(round(row.tokens_per_s)) if row.status == "ok" else row.status
            parts.beside(left, (row.tokens_per_s + more) if row.status == "ok" else 0, place, text)
        left.set(title=f"{where(table)}: speed", xlabel="tokens per second, all ranks")
        left.set_xlim(0, 1.2 * (table["tokens_per_s"] + spread).max())
        left.xaxis.set_major_formatter(lambda value, _: units.count(value))
        scale, unit = ledgers.memory_unit(table["held_mib"].max())
        ledgers.held_bars(right, [*places], {item: table[item] / scale for item in HELD})
        ledgers.peak_marks(right, [*places], table["peak_mib"] / scale)
        right.grid(axis="x")
        right.set(title="What a rank's tensors hold", xlabel=unit)
    canvas.shared_legend(figure, grid[:, 1], columns=5)
    return canvas.finish(figure, sources(*tables))
