"""Sliders over buckets: model, calls, link, backward and bucket size; their timeline, and the step for every size."""

from __future__ import annotations

import ipywidgets

from labkit.charts import canvas
from labkit.charts.knobs import with_picture
from labkit.labs.ddp_from_scratch.theory import Overhead, exposed_s, timeline, waited_s
from labkit.story import units

SIZES_MB = (1, 2, 5, 10, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
WIDTH, LANE, LEFT, RIGHT = 920, 30, 100, 90  # pixels of the drawing, of a lane's height, of the room at both sides
BAR, BELOW = 17, 16  # pixels of a row of the sizes' bars, of the line of text over them
LANES = {"backward": canvas.COMPUTE, "call": canvas.WAIT, "on the link": canvas.COMMUNICATE}


def picture(
    model_mb: float, parameters: int, overhead_ms: float, gb_per_s: float, backward_ms: float, bucket_mb: float
) -> str:
    """Return HTML: a sentence over an SVG, buckets against backward above, what every size leaves exposed below.

    MB are 10^6 bytes; the formula is n·o + s/(n·w).
    """
    knobs = {
        "whole_bytes": model_mb * 1e6,
        "parameters": parameters,
        "backward_s": backward_ms / 1e3,
        "overhead_s": overhead_ms / 1e3,
        "bytes_per_s": gb_per_s * 1e9,
    }
    sizes_mb = sorted({*SIZES_MB, bucket_mb})
    late_ms = {mb: 1e3 * exposed_s(timeline(bucket_bytes=mb * 1e6, **knobs), backward_ms / 1e3) for mb in sizes_mb}
    flights = timeline(bucket_bytes=bucket_mb * 1e6, **knobs)
    model = Overhead(0.0, overhead_ms / 1e3, gb_per_s * 1e9)
    top = 2 * LANE + BELOW
    bars = [
        _bar(top + BELOW + BAR * row, mb, late, max(late_ms.values()), mb == bucket_mb)
        for row, (mb, late) in enumerate(late_ms.items())
    ]
    legend = " &nbsp; ".join(f'<span style="color:{color}">■</span> {name}' for name, color in LANES.items())
    height = top + BELOW + BAR * len(sizes_mb) + 4
    return (
        f'<div style="min-height:3em">{_sentence(flights, model, model_mb, backward_ms, late_ms)}</div>'
        f'<div style="color:{canvas.QUIET}">{legend}</div><svg viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'font-size="11" font-family="sans-serif" fill="{canvas.INK}">{_lanes(flights, backward_ms)}'
        f'<text x="0" y="{top + 8}">exposed, by size of bucket:</text>{"".join(bars)}</svg>'
    )


def _sentence(flights: list, model: Overhead, model_mb: float, backward_ms: float, late_ms: dict) -> str:
    exposed, formula = exposed_s(flights, backward_ms / 1e3), model.seconds(len(flights), model_mb * 1e6)
    best = min(late_ms, key=lambda mb: (round(late_ms[mb], 6), mb))
    waited = waited_s(flights)
    why = (
        f"the formula says {units.seconds(formula)}, but full buckets wait {units.seconds(waited)} for the link, which "
        "the formula does not know"
        if waited > 0
        else f"the formula says {units.seconds(formula)}"
    )
    there = model.best_bytes(model_mb * 1e6)
    root = f"; √(s·w·o) is {units.number(there / 1e6)} MB" if there == there else ""
    return (
        f"<b>{len(flights)} buckets</b>: the last is there {units.seconds(exposed)} after a backward that sends "
        f"nothing would end; {why}. Of the sizes below {best:g} MB leaves least{root}."
    )


def _lanes(flights: list, backward_ms: float) -> str:
    end_s = flights[-1].end_s
    scale = (WIDTH - LEFT - RIGHT) / end_s
    drawn = ['<text x="0" y="20">backward</text>', f'<text x="0" y="{LANE + 20}">link</text>']
    begun = 0.0
    for flight in flights:
        spans = (
            (0, begun, flight.full_s, "backward"),
            (0, flight.full_s, flight.called_s, "call"),
            (1, flight.start_s, flight.end_s, "on the link"),
        )
        drawn += [_box(lane, start, end, scale, LANES[name]) for lane, start, end, name in spans if end > start]
        begun = flight.called_s
    x = LEFT + backward_ms / 1e3 * scale
    place = f'x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{2 * LANE}"'
    drawn.append(f'<line {place} stroke="{canvas.INK}" stroke-dasharray="4 2"/>')
    drawn.append(f'<text x="{WIDTH - RIGHT + 6}" y="{LANE + 20}">{units.seconds(end_s)}</text>')
    return "".join(drawn)


def _box(lane: int, start_s: float, end_s: float, scale: float, color: str) -> str:
    return (
        f'<rect x="{LEFT + start_s * scale:.2f}" y="{LANE * lane + 4}" width="{(end_s - start_s) * scale:.2f}" '
        f'height="{LANE - 8}" fill="{color}"/>'
    )


def _bar(y: int, bucket_mb: float, late_ms: float, most_ms: float, chosen: bool) -> str:
    width = (WIDTH - LEFT - RIGHT) * late_ms / most_ms
    color, weight = (canvas.COMMUNICATE, "bold") if chosen else (canvas.IDLE, "normal")
    return (
        f'<text x="0" y="{y + 12}" font-weight="{weight}">{bucket_mb:g} MB</text>'
        f'<rect x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{BAR - 4}" fill="{color}"/>'
        f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}" font-weight="{weight}">{units.seconds(late_ms / 1e3)}</text>'
    )


def explore() -> ipywidgets.VBox:
    """Return the sliders with the timeline that they change; they begin at the course's XL in float32."""
    long = {"style": {"description_width": "150px"}, "layout": {"width": "400px"}}
    choices = {
        "model_mb": ("gradients, MB", 8000, (100, 500, 1000, 2000, 4000, 8000, 16_000)),
        "parameters": ("parameters", 435, (50, 150, 435, 1000)),
        "backward_ms": ("backward, ms", 300, (10, 30, 100, 300, 1000)),
        "overhead_ms": ("a call, o, ms", 0.1, (0, 0.01, 0.03, 0.1, 0.3, 1, 3)),
        "gb_per_s": ("link, w, GB/s", 100, (3, 10, 25, 50, 100, 200, 400)),
        "bucket_mb": ("bucket, MB", 25, SIZES_MB),
    }
    knobs = {
        name: ipywidgets.SelectionSlider(options=options, value=value, description=text, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
