"""Steps by implementation, buckets against backward, the sweep over bucket sizes, and what a report printed."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas, parts
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import trace_chart as trace_chart
from labkit.labs.ddp_from_scratch.theory import NAMES, Flight, exposed_s, timeline
from labkit.provenance import fact, sources, where
from labkit.story import units

_MB = 1e6
_DASHES = (0, (4, 2))
_STRATEGY_OF_PRINTED = {
    "naive": "naive",
    "flat": "flat",
    "overlap_individual": "overlapped",
    "individual": "overlapped",
    "individual (bucket experiment)": "overlapped",
    "bucketed": "bucketed",
}
_PUBLISHED_TITLE = "Published, 2 × H100"


def steps_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """A bar per strategy: what a step takes that sends nothing, and what sending adds; a line at torch's DDP.

    A panel per run; what a report prints, which had another batch, stands in a panel of its own.
    """
    count = len(tables) + (published is not None)
    figure, axes = parts.panels(count, height=1.7 + 0.42 * max(map(len, tables)))
    for ax, table in zip(axes, tables, strict=False):
        _steps(ax, table, 1.2 + 0.16 * count)
    if published is not None:
        _printed_steps(axes[-1], tables[-1], published)
    canvas.legend_above(axes[0])
    return canvas.finish(figure, sources(*tables, published))


def _steps(ax: Axes, table: pd.DataFrame, room: float) -> None:
    """Draw a run's steps; the axis ends `room` times as far as the longest bar."""
    exposed = table["exposed_ms"].fillna(0.0).clip(lower=0.0)
    parts.rows(ax, [_label(row) for row in table.itertuples()])
    end = parts.bars(ax, table["step_ms"] - exposed, color=canvas.COMPUTE, label="compute")
    more = {"color": canvas.COMMUNICATE, "label": "exposed communication", "spread": table["spread_step_ms"]}
    parts.bars(ax, exposed, start=end, **more)
    for step_ms in table.loc[table["strategy"] == "ddp", "step_ms"].dropna():
        ax.axvline(step_ms, color=canvas.INK, lw=1.2, ls=_DASHES, label=NAMES["ddp"])
    longest_ms = (table["step_ms"] + table["spread_step_ms"].fillna(0.0)).max()
    for place, row in enumerate(table.itertuples()):
        text = units.seconds(row.step_ms / 1e3) if row.status == "ok" else row.status
        ax.text(1.06 * longest_ms, place, text, va="center", fontsize=9)
    ax.set(title=where(table), xlabel="ms per step", xlim=(0, room * longest_ms))


def _label(row: Any) -> str:
    """Return a strategy's name, with the bucket's size where that is ours to choose."""
    return NAMES[row.strategy] + (f",\n{row.bucket_mb:g} MB" if row.strategy == "bucketed" else "")


def _printed_steps(ax: Axes, table: pd.DataFrame, published: pd.DataFrame) -> None:
    """Mark what a report prints for each strategy of the table, its bucket sizes alike."""
    place_of = {strategy: place for place, strategy in enumerate(table["strategy"])}
    places, steps_ms = published["implementation"].map(_STRATEGY_OF_PRINTED).map(place_of), _printed_ms(published)
    shown = places.notna() & steps_ms.notna()
    parts.rows(ax, [""] * len(table))
    ax.plot(steps_ms[shown], places[shown], "^", color=canvas.PUBLISHED, mec="white", ms=9)
    ax.set(title=_PUBLISHED_TITLE, xlabel="ms per step", xlim=(0, 1.15 * steps_ms[shown].max()))


def _printed_ms(published: pd.DataFrame) -> pd.Series:
    """Return the printed steps; NaN where a report prints a word, such as "OOM"."""
    return 1e3 * pd.to_numeric(published["step_seconds"], errors="coerce")


def published_chart(published: pd.DataFrame, repeats: pd.DataFrame) -> Figure:
    """A mark per printed step; the band is what one configuration, printed several times, covers."""
    steps_ms = _printed_ms(published)
    sizes = published["bucket_mb"].map(lambda mb: f", {mb:g} MB", na_action="ignore").fillna("")
    names = published["implementation"].str.replace("_", " ") + sizes
    figure, ax = canvas.canvas(height=1.4 + 0.34 * len(published))
    places = pd.Series(parts.rows(ax, list(names)), index=published.index)
    least, most = 1e3 * repeats["step_s"].min(), 1e3 * repeats["step_s"].max()
    ax.axvspan(least, most, color=canvas.HAIRLINE, label=f"one configuration, printed {len(repeats)} times")
    again = published["implementation"].isin(repeats["printed"])
    for which, color, name in ((~again, canvas.PUBLISHED, "published"), (again, canvas.INK, "the same, again")):
        ax.plot(steps_ms[which], places[which], "^", ms=8, color=color, label=name)
    for place, step_ms, printed in zip(places, steps_ms, published["step_seconds"], strict=True):
        known = pd.notna(step_ms)
        text = units.number(step_ms) if known else printed
        parts.beside(ax, step_ms if known else steps_ms.min(), place, text, xytext=(8, 0))
    ax.set(xlabel="ms per step", title="As printed")
    ax.margins(x=0.12)
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(published))


def flights_chart(
    buckets_mb: tuple[float, ...],
    *,
    whole_mb: float,
    parameters: int,
    backward_ms: float,
    overhead_ms: float,
    gb_per_s: float,
) -> Figure:
    """By the model, a pair of lanes per bucket size: backward and its calls above, buckets on the link below.

    MB are 10^6 bytes. The line is where a backward that sends nothing ends.
    """
    figure, ax = canvas.canvas(height=1.5 + 0.8 * len(buckets_mb))
    rates = {"backward_s": backward_ms / 1e3, "overhead_s": overhead_ms / 1e3, "bytes_per_s": gb_per_s * 1e9}
    parts.rows(ax, [f"{mb:g} MB" for mb in buckets_mb])
    ends_ms = []
    for row, bucket_mb in enumerate(buckets_mb):
        flights = timeline(whole_mb * _MB, parameters, bucket_mb * _MB, **rates)
        _flights(ax, row, flights)
        ends_ms.append(1e3 * flights[-1].end_s)
        late = units.seconds(exposed_s(flights, backward_ms / 1e3))
        ax.text(ends_ms[-1], row, f"  {late} later", va="center", fontsize=9)
    ax.axvline(backward_ms, color=canvas.INK, lw=1.2, ls=_DASHES, label="backward alone")
    parts.swatches(ax, {"backward": canvas.COMPUTE, "calls": canvas.WAIT, "on the link": canvas.COMMUNICATE})
    ax.set(xlim=(0, 1.17 * max(ends_ms)), xlabel="ms since backward began", title="Buckets against backward: the model")
    ax.grid(False)
    ax.tick_params(axis="y", length=0)
    canvas.legend_above(ax)
    knobs = f"{whole_mb:g} MB, {parameters} parameters, {overhead_ms:g} ms per call, {gb_per_s:g} GB/s"
    return canvas.finish(figure, f"theory: {knobs}")


def _flights(ax: Axes, row: int, flights: list[Flight]) -> None:
    begun_s = [0.0, *(one.called_s for one in flights[:-1])]
    backward = [(begun, one.full_s) for begun, one in zip(begun_s, flights, strict=True)]
    calls = [(one.full_s, one.called_s) for one in flights]
    link = [(one.start_s, one.end_s) for one in flights]
    for color, spans_s in ((canvas.COMPUTE, backward), (canvas.WAIT, calls), (canvas.COMMUNICATE, link)):
        spans_ms = [(1e3 * start, 1e3 * (end - start)) for start, end in spans_s]
        parts.lane(ax, row, spans_ms, color=color, below=color == canvas.COMMUNICATE)


def buckets_chart(
    table: pd.DataFrame,
    fit: pd.DataFrame,
    line: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    guess: Any = None,
) -> Figure:
    """A step against the mean bucket: measured with spreads, the fitted n·o + s/(n·w), its optimum, torch's DDP.

    `guess` (MiB, a number or a Prediction) and the published steps (ms, on a scale of their own) stand beside.
    """
    count = 1 if published is None else 2
    figure, axes = parts.panels(count, height=4.2, width_ratios=(2, 1)[:count])
    ax = axes[0]
    ax.plot(line["mean_mib"], line["fitted_ms"], color=canvas.THEORY, lw=1.3, ls=(0, (5, 2)), label="fitted model")
    looks = {"bucketed": ("bucketed", "o", canvas.MEASURED), "overlapped": ("overlapped, one by one", "s", "white")}
    for strategy, (label, marker, fill) in looks.items():
        own = table[table["strategy"] == strategy]
        look = {"color": canvas.MEASURED, "marker": marker, "mfc": fill, "ls": "", "capsize": 3, "label": label}
        ax.errorbar(own["mean_mib"], own["step_ms"], yerr=own["spread_step_ms"], **look)
    for name, label, color in (("none_ms", NAMES["none"], canvas.IDLE), ("ddp_ms", NAMES["ddp"], canvas.INK)):
        if pd.notna(step_ms := fact(table, name)):
            ax.axhline(step_ms, color=color, lw=1.6, ls=(0, (2, 2)), label=label)
    for best in fit[fit["optimum_mib"].notna()].itertuples():
        ax.plot(best.optimum_mib, best.optimum_ms, "v", ms=11, color=canvas.PREDICTED, label="predicted optimum")
    parts.guess_line(ax, guess)
    ax.set(title=where(table), xlabel="mean bucket, MiB (log)", ylabel="ms per step")
    canvas.logarithmic(ax.xaxis)
    ax.grid(axis="y")
    if published is not None:
        _printed_buckets(axes[1], published)
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, sources(table, published))


def _printed_buckets(ax: Axes, published: pd.DataFrame) -> None:
    rows = published[published["implementation"] == "bucketed"]
    steps_ms = _printed_ms(rows)
    ax.plot(rows["bucket_mb"], steps_ms, "^", color=canvas.PUBLISHED, ms=8)
    for row in rows[steps_ms.isna()].itertuples():
        ax.annotate(row.step_seconds, (row.bucket_mb, steps_ms.min()), ha="center", fontsize=9, color=canvas.PUBLISHED)
    ax.set(title=_PUBLISHED_TITLE, xlabel="bucket, MB (log)", ylabel="ms per step")
    ax.set_xlim(0.5, 4000)
    ax.margins(y=0.15)
    canvas.logarithmic(ax.xaxis)
    ax.grid(axis="y")
