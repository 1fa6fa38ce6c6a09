"""Steps by strategy, buckets drawn against backward, and the sweep over bucket sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import trace_chart as trace_chart
from labkit.provenance import fact, where
from labkit.story import units
from labkit.theory.sizes import MB
from lessons.ddp_from_scratch.theory import NAMES, Flight, exposed_s, timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def steps_chart(*tables: pd.DataFrame) -> Figure:
    """A bar per strategy: how much longer its step is than one that sends nothing; a line at torch's DDP.

    A panel per run; each has its own scale.
    """
    figure, shown = parts.panel_each(parts.distinct(tables), height=1.7 + 0.42 * max(map(len, tables)))
    for ax, table in shown:
        _steps(ax, table)
    return parts.close(figure, *tables, note=parts.own_scales(shown), columns=4)


def _steps(ax: Axes, table: pd.DataFrame) -> None:
    alone_ms, table = table.loc[table["strategy"] == "none", "step_ms"], table[table["strategy"] != "none"]
    longer, spread = table["longer_ms"].fillna(0.0), table["spread_longer_ms"].fillna(0.0)
    parts.rows(ax, [_label(row) for row in table.itertuples()])
    colors = [canvas.YOURS if strategy.startswith("your_") else canvas.COMMUNICATE for strategy in table["strategy"]]
    parts.bars(ax, longer, color=colors, spread=spread)
    for longer_ms in table.loc[table["strategy"] == "ddp", "longer_ms"].dropna():
        ax.axvline(longer_ms, color=canvas.INK, lw=1.2, ls=canvas.DASHES, label=NAMES["ddp"])
    ax.axvline(0, color=canvas.INK, lw=0.8)
    end = max(1e-3, (longer + spread).max())
    for place, row in enumerate(table.itertuples()):
        text = f"{units.number(row.step_ms)} ms" if row.status == "ok" else row.status
        ax.text(1.06 * end, place, text, va="center", fontsize=9)
    batch = f"{fact(table, 'ranks')} ranks, {fact(table, 'sequences')} × {fact(table, 'positions')} positions"
    alone = "".join(f"nothing sent: {units.number(step_ms)} ms; " for step_ms in alone_ms.dropna())
    low = min(0.0, (longer - spread).min())
    ax.set(title=f"{where(table)}\n{batch}", xlabel=f"ms more than a step that sends nothing\n({alone}right: step)")
    ax.set_xlim(1.05 * low, 1.45 * end)


def _label(row: Any) -> str:
    """Return a strategy's name; of the bucketed one with its size."""
    return NAMES[row.strategy] + (f",\n{row.bucket_mb:g} MiB" if row.strategy == "bucketed" else "")


def flights_chart(
    buckets_mb: tuple[float, ...],
    *,
    whole_mb: float,
    parameters: int,
    backward_ms: float,
    overhead_ms: float,
    gb_per_s: float,
) -> Figure:
    """A computed pair of lanes per bucket size: backward and its calls above, buckets on the link below.

    MB are 10^6 bytes. "+" says how long after a backward that sends nothing the last bucket arrives.
    """
    figure, ax = canvas.canvas(height=1.5 + 0.8 * len(buckets_mb))
    rates = {"backward_s": backward_ms / 1e3, "overhead_s": overhead_ms / 1e3, "bytes_per_s": gb_per_s * 1e9}
    parts.rows(ax, [f"{mb:g} MB" for mb in buckets_mb])
    ends_ms = []
    for row, bucket_mb in enumerate(buckets_mb):
        flights = timeline(whole_mb * MB, parameters, bucket_mb * MB, **rates)
        _flights(ax, row, flights)
        ends_ms.append(1e3 * flights[-1].end_s)
        later = units.seconds(exposed_s(flights, backward_ms / 1e3))
        ax.text(ends_ms[-1], row, f"  + {later}", va="center", fontsize=9)
    ax.axvline(backward_ms, color=canvas.INK, lw=1.2, ls=canvas.DASHES, label="end of a backward that sends nothing")
    colors = {"backward": canvas.COMPUTE, "a call stops backward": canvas.WAIT, "on the link": canvas.COMMUNICATE}
    parts.swatches(ax, colors)
    ax.set(xlim=(0, 1.17 * max(ends_ms)), xlabel="ms since backward began", title="Sending during backward: computed")
    ax.grid(False)
    ax.tick_params(axis="y", length=0)
    canvas.legend_above(ax)
    knobs = f"{whole_mb:g} MB, {parameters} weights, {overhead_ms:g} ms per call, {gb_per_s:g} GB/s"
    return canvas.finish(figure, f"theory: {knobs}")


def _flights(ax: Axes, row: int, flights: list[Flight]) -> None:
    begun_s = [0.0, *(flight.called_s for flight in flights[:-1])]
    backward = [(begun, flight.full_s) for begun, flight in zip(begun_s, flights, strict=True)]
    calls = [(flight.full_s, flight.called_s) for flight in flights]
    link = [(flight.start_s, flight.end_s) for flight in flights]
    for color, spans_s in ((canvas.COMPUTE, backward), (canvas.WAIT, calls), (canvas.COMMUNICATE, link)):
        spans_ms = [(1e3 * start, 1e3 * (end - start)) for start, end in spans_s]
        parts.lane(ax, row, spans_ms, color=color, below=color == canvas.COMMUNICATE)


def buckets_chart(
    tables: Sequence[pd.DataFrame], fits: Sequence[pd.DataFrame], lines: Sequence[pd.DataFrame], guess: Any = None
) -> Figure:
    """The step by mean bucket size, a panel per run: measured, the fitted formula with its best size, torch's DDP.

    A number beside a mark is the bucket size asked for, in MiB. `guess` (MiB, a number or a Prediction) is a line.
    """
    figure, shown = parts.panel_each(parts.distinct(zip(tables, fits, lines, strict=True)), height=4.4)
    for ax, run in shown:
        _sweep(ax, *run)
        parts.guess_line(ax, guess)
    return parts.close(figure, *tables, columns=4)


def _sweep(ax: Axes, table: pd.DataFrame, fit: pd.DataFrame, line: pd.DataFrame) -> None:
    looks = {"bucketed": ("buckets, asked size in MiB", canvas.MEASURED), "overlapped": ("single gradients", "white")}
    for strategy, (label, fill) in looks.items():
        rows = table[table["strategy"] == strategy]
        look = {"color": canvas.MEASURED, "marker": "o", "mfc": fill, "ls": "", "capsize": 3, "label": label}
        ax.errorbar(rows["mean_mib"], rows["step_ms"], yerr=rows["spread_step_ms"], **look)
    ax.plot(line["mean_mib"], line["fitted_ms"], color=canvas.THEORY, lw=1.4, label="n·o + s/(n·w), fitted")
    for best in fit[fit["optimum_mib"].notna()].itertuples():
        ax.plot(best.optimum_mib, best.optimum_ms, "v", ms=10, mfc="none", color=canvas.THEORY, label="its best size")
    references = (("none_ms", NAMES["none"], canvas.COMPUTE, ":"), ("ddp_ms", NAMES["ddp"], canvas.INK, canvas.DASHES))
    for name, label, color, dashes in references:
        if pd.notna(step_ms := fact(table, name)):
            ax.axhline(step_ms, color=color, lw=1.4, ls=dashes, label=label)
    tops = table["step_ms"] + table["spread_step_ms"].fillna(0.0)
    for row, top in zip(table.itertuples(), tops, strict=True):
        if row.strategy == "bucketed" and top == top:
            size = f"{row.bucket_mb:g}"
            ax.annotate(size, (row.mean_mib, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7.5)
    ax.set(title=f"{where(table)}, {fact(table, 'ranks')} ranks", xlabel="mean bucket, MiB (log)", ylabel="ms per step")
    ax.set_ylim(0, 1.12 * tops.max())
    canvas.logarithmic(ax.xaxis)
    ax.grid(axis="y")
