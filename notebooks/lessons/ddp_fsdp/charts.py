"""Ledgers and rates as pictures: this run first, the recorded one beside it or, where both have one size, behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers, parts
from labkit.charts.parts import Layer, run_panels
from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS
from labkit.theory.memory import ITEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HOLLOW: Any = {"marker": "D", "facecolors": "none", "edgecolors": canvas.INK, "zorder": 2}
_MARKERS = "^v"  # one per report
_TRIANGLES = {"^": "▲", "v": "▼"}


def _panels_of(tables: Sequence[pd.DataFrame], *sizes: str, **options: Any) -> tuple[Figure, list[tuple[Axes, Any]]]:
    """Return a figure with the panels of this run and the recorded one, or of one table alone."""
    shown = run_panels(tables[0] if len(tables) > 1 else None, tables[-1], *sizes)
    return parts.panel_each(shown, width=11.5 if len(shown) > 1 else 9.6, **options)


def _title(layers: list[Layer]) -> str:
    """Return whose run a panel shows, and on what."""
    table = layers[-1].table
    if fact(table, "source").startswith("theory"):
        return f"By theory: {fact(table, 'ranks')} GPUs"
    return f"{parts.whose(layers)}: {fact(table, 'ranks')} {parts.workers(table)}"


def ledger_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Stacked bars of what a rank holds, by item, a bar per strategy; a diamond where the allocator saw the peak.

    Of several batches the largest is shown. `guess` is a prediction in GiB for the last table, or None.
    """
    most = max(table["strategy"].nunique() for table in tables)
    figure, shown = _panels_of(tables, rows=most, row_height=0.5)
    for ax, layers in shown:
        rows = _largest(layers[-1].table)
        scale, unit = ledgers.memory_unit(rows["predicted"].max())
        places = parts.rows(ax, [STRATEGY_LABELS[name] for name in rows["strategy"]])
        ledgers.held_bars(ax, places, {item: rows[item].to_numpy() / scale for item in ITEMS})
        ends = rows["predicted"].max()
        if "peak" in rows:
            ledgers.peak_marks(ax, places, rows["peak"] / scale)
            ends = max(ends, rows["peak"].max() if rows["peak"].notna().any() else 0)
        if len(layers) > 1:
            behind = _largest(layers[0].table).set_index("strategy").reindex(rows["strategy"])["peak"]
            ax.scatter(behind / scale, places, s=70, label="recorded peak", **_HOLLOW)
        batch = f", batch {rows['batch'].iloc[0]}" if "batch" in rows else ""
        ax.set(title=f"{_title(layers)}{batch}", xlabel=f"memory per GPU, {unit}")
        if ax is figure.axes[-1]:
            parts.guess_line(ax, guess, 1024 / scale)
            ends = max(ends, 1024 * (parts.guessed(guess) or 0))
        ax.set_xlim(0, 1.06 * ends / scale)
    return parts.close(figure, *tables, note=parts.own_scales(shown), columns=4)


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["batch"] == table["batch"].max()] if "batch" in table else table


def _rate_bars(
    tables: Sequence[pd.DataFrame],
    name_of: Callable[[Any], str],
    note_of: Callable[[Any], str],
    brackets: str,
    published: pd.DataFrame | None = None,
) -> Figure:
    """Draw bars of samples per second, a note on each at the right edge; of a run that stands behind, diamonds.

    `brackets`: what a note has in brackets. `published` rates are triangles in the last panel, in the rows of their
    strategy and batch.
    """
    figure, shown = _panels_of(tables, "batches", rows=max(map(len, tables)), row_height=0.36)
    for ax, layers in shown:
        table = layers[-1].table
        rows = [*table.itertuples()]
        rates, spreads = table["samples_per_s"], table["spread_samples_per_s"].fillna(0)
        places = parts.rows(ax, [name_of(row) for row in rows], fontsize=9)
        parts.bars(ax, rates, color=layers[-1].color, label=layers[-1].label, spread=spreads)
        ends = [rates.add(spreads).max()]
        if len(layers) > 1:
            look = {"marker": "D", "s": 46, "color": canvas.RECORDED, "zorder": 3}
            behind = {name_of(row): row.samples_per_s for row in layers[0].table.itertuples()}
            dots = [behind.get(name_of(row), float("nan")) for row in rows]
            ax.scatter(dots, places, label="recorded run", **look)
            ends.append(max(behind.values()))
        printed: dict[int, str] = {}
        if published is not None and ax is figure.axes[-1]:
            most, printed = _published_marks(ax, published, [(row.strategy, row.batch) for row in rows])
            ends.append(most)
        right = 1.08 * max(1e-9, *ends)
        for place, row in zip(places, rows, strict=True):
            note = str(row.status) if pd.isna(row.samples_per_s) else note_of(row)
            ax.text(right, place, note + printed.get(place, ""), va="center", fontsize=8)
        ax.set(title=_title(layers), xlabel="samples/second", xlim=(0, 1.38 * right))
    note = f"in brackets: {brackets} · {parts.own_scales(shown)}"
    return parts.close(figure, *tables, published, note=note)


def _published_marks(
    ax: Axes, published: pd.DataFrame, settings: list[tuple[str, int]]
) -> tuple[float, dict[int, str]]:
    """Mark what reports print, a marker per report; return the largest rate, else 0, and each row's marks as text."""
    most, texts = 0.0, dict.fromkeys(range(len(settings)), "")
    for (name, rows), marker in zip(published.groupby("name", sort=False), _MARKERS, strict=False):
        shown = [row for row in rows.itertuples() if (row.strategy, row.global_batch) in settings]
        rates = [row.samples_per_second for row in shown]
        places = [settings.index((row.strategy, row.global_batch)) for row in shown]
        look = {"marker": marker, "color": canvas.PUBLISHED, "ec": "white", "s": 70, "zorder": 4}
        ax.scatter(rates, places, label=f"{name}: 4 GPUs", **look)
        most = max(most, *rates, 0.0)
        for place, rate in zip(places, rates, strict=True):
            texts[place] += f"  {_TRIANGLES[marker]} {units.number(rate)}"
    return most, texts


def strategies_chart(*tables: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Samples per second by batch and strategy, each with its difference from DDP; takes `compared` tables.

    `published` are the rows of `printed_runs`, of four GPUs.
    """

    def note(row: Any) -> str:
        rate = units.number(row.samples_per_s)
        if row.strategy in ("single", "ddp") or pd.isna(row.percent):
            return rate
        return f"{rate} ({f'{row.percent:+.1f} %' if row.resolved else 'within noise'})".replace("-", "−")

    def name(row: Any) -> str:
        return f"{STRATEGY_LABELS[row.strategy]}, batch {row.batch}"

    return _rate_bars(tables, name, note, "compared with DDP", published)


def knobs_chart(*tables: pd.DataFrame) -> Figure:
    """Samples per second rung by rung, each with its factor over the rung before; takes `ladder` tables."""

    def note(row: Any) -> str:
        factor = "" if pd.isna(row.times_previous) else f" ({units.times(row.times_previous)})"
        return f"{units.number(row.samples_per_s)}{factor}"

    return _rate_bars(tables, lambda row: row.knob, note, "compared with the row above")
