"""Buckets against backward by the model, and steps against the bucket's size as measured."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.ddp_from_scratch.theory import Flight, exposed_s, timeline
from labkit.provenance import fact, sources, where
from labkit.story import units

MB = 1e6


def flights_chart(
    buckets_mb: tuple[float, ...],
    *,
    whole_mb: float,
    parameters: int,
    backward_ms: float,
    overhead_ms: float,
    gb_per_s: float,
) -> Figure:
    """By the model, a pair of lanes a bucket size: backward and its calls above, buckets on the link below.

    MB are 10^6 bytes. The line is where a backward that sends nothing ends.
    """
    figure, ax = canvas.canvas(height=1.5 + 0.8 * len(buckets_mb))
    rates = {"backward_s": backward_ms / 1e3, "overhead_s": overhead_ms / 1e3, "bytes_per_s": gb_per_s * 1e9}
    ends = []
    for place, bucket_mb in enumerate(buckets_mb):
        flights = timeline(whole_mb * MB, parameters, bucket_mb * MB, **rates)
        _flights(ax, place, flights)
        ends.append(1e3 * flights[-1].end_s)
        late = units.seconds(exposed_s(flights, backward_ms / 1e3))
        ax.text(ends[-1], place, f"  {late} later", va="center", fontsize=9)
    ax.axvline(backward_ms, color=canvas.INK, lw=1.2, ls=(0, (4, 2)), label="backward alone")
    for color, name in ((canvas.COMPUTE, "backward"), (canvas.WAIT, "calls"), (canvas.COMMUNICATE, "on the link")):
        ax.plot([], [], color=color, lw=6, label=name)
    ax.set(yticks=range(len(buckets_mb)), yticklabels=[f"{mb:g} MB" for mb in buckets_mb], xlim=(0, 1.17 * max(ends)))
    ax.set(xlabel="ms since backward began", title="Buckets against backward: the model")
    ax.set_ylim(len(buckets_mb) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    canvas.legend_above(ax)
    knobs = f"{whole_mb:g} MB, {parameters} parameters, {overhead_ms:g} ms a call, {gb_per_s:g} GB/s"
    return canvas.finish(figure, f"theory: {knobs}")


def _flights(ax: Axes, place: int, flights: list[Flight]) -> None:
    begun = [0.0, *(one.called_s for one in flights[:-1])]
    lanes = {
        canvas.COMPUTE: (-0.36, [(at, one.full_s - at) for at, one in zip(begun, flights, strict=True)]),
        canvas.WAIT: (-0.36, [(one.full_s, one.called_s - one.full_s) for one in flights]),
        canvas.COMMUNICATE: (0.02, [(one.start_s, one.end_s - one.start_s) for one in flights]),
    }
    for color, (top, spans) in lanes.items():
        spans_ms = [(1e3 * start, 1e3 * length) for start, length in spans]
        ax.broken_barh(spans_ms, (place + top, 0.34), facecolors=color, linewidth=0)


def buckets_chart(
    table: pd.DataFrame, fit: pd.DataFrame, line: pd.DataFrame, *, published: pd.DataFrame | None = None, guess=None
) -> Figure:
    """A step against the mean bucket: measured with spreads, the fitted n·o + s/(n·w), its optimum, torch's DDP.

    `guess` (MiB, a number or a Prediction) and the published steps (ms, on the right axis' own scale) stand beside.
    """
    panels = 1 if published is None else 2
    figure, axes = canvas.canvas(panels, height=4.2, squeeze=False, width_ratios=(2, 1)[:panels])
    ax, own = axes[0, 0], table[table["strategy"] == "bucketed"]
    ax.plot(line["mean_mib"], line["fitted_ms"], color=canvas.THEORY, lw=1.3, ls=(0, (5, 2)), label="fitted model")
    ax.errorbar(
        own["mean_mib"],
        own["step_ms"],
        yerr=own["spread_step_ms"],
        color=canvas.MEASURED,
        marker="o",
        ls="",
        capsize=3,
        label="bucketed",
    )
    single = table[table["strategy"] == "overlapped"]
    ax.errorbar(
        single["mean_mib"],
        single["step_ms"],
        yerr=single["spread_step_ms"],
        color=canvas.MEASURED,
        marker="s",
        mfc="white",
        ls="",
        capsize=3,
        label="overlapped, one by one",
    )
    for value, name, color in (("none_ms", "nothing sent", canvas.IDLE), ("ddp_ms", "torch's DDP", canvas.INK)):
        if pd.notna(fact(table, value)):
            ax.axhline(fact(table, value), color=color, lw=1.6, ls=(0, (2, 2)), label=name)
    for best in fit[fit["optimum_mib"].notna()].itertuples():
        ax.plot(best.optimum_mib, best.optimum_ms, "v", ms=11, color=canvas.PREDICTED, label="predicted optimum")
    value = getattr(guess, "value", guess)
    if value is not None:
        ax.axvline(value, color=canvas.PREDICTED, ls=(0, (3, 2)), lw=1.6, label="your prediction")
    ax.set(title=where(table), xlabel="mean bucket, MiB (log)", ylabel="ms a step")
    canvas.logarithmic(ax.xaxis)
    ax.grid(axis="y")
    if published is not None:
        _printed(axes[0, 1], published)
    canvas.legend_above(ax, columns=4)
    return canvas.finish(figure, sources(table, published))


def _printed(ax: Axes, published: pd.DataFrame) -> None:
    rows = published[published["implementation"] == "bucketed"]
    steps_ms = 1e3 * pd.to_numeric(rows["step_seconds"], errors="coerce")
    ax.plot(rows["bucket_mb"], steps_ms, "^", color=canvas.PUBLISHED, ms=8)
    for row in rows[steps_ms.isna()].itertuples():
        ax.annotate(row.step_seconds, (row.bucket_mb, steps_ms.min()), ha="center", fontsize=9, color=canvas.PUBLISHED)
    ax.set(title="Published, 2 × H100", xlabel="bucket, MB (log)", ylabel="ms a step")
    ax.set_xlim(0.5, 4000)
    ax.margins(y=0.15)
    canvas.logarithmic(ax.xaxis)
    ax.grid(axis="y")
