"""Sliders over buckets: model, calls, link, backward and bucket size; their timeline, and the step for every size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from lessons.ddp_from_scratch.theory import Flight, Overhead, exposed_s, timeline, waited_s

if TYPE_CHECKING:
    import ipywidgets

SIZES_MB = (1, 2, 5, 10, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_LANE, LEFT, RIGHT = 30, 100, 90  # pixels of a lane's height, of the room at both sides
_BAR, _BELOW = 17, 16  # pixels of a row of the sizes' bars, of the line of text over them
_LANES = {"backward": canvas.COMPUTE, "call": canvas.WAIT, "on the link": canvas.COMMUNICATE}


def picture(
    model_mb: float, parameters: int, overhead_ms: float, gb_per_s: float, backward_ms: float, bucket_mb: float
) -> str:
    """Return HTML: a sentence over an SVG, buckets and backward above, the exposed time of every size below.

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
    exposed_ms = {mb: 1e3 * exposed_s(timeline(bucket_bytes=mb * 1e6, **knobs), backward_ms / 1e3) for mb in sizes_mb}
    flights = timeline(bucket_bytes=bucket_mb * 1e6, **knobs)
    model = Overhead(0.0, overhead_ms / 1e3, gb_per_s * 1e9)
    top = 2 * _LANE + _BELOW
    longest_ms = max(exposed_ms.values())
    bars = [
        part
        for row, (mb, late) in enumerate(exposed_ms.items())
        for part in _size(top + _BELOW + _BAR * row, mb, late, longest_ms, chosen=mb == bucket_mb)
    ]
    drawing = [*_lanes(flights, backward_ms), svg.word(0, top + 8, "exposed time by bucket size:"), *bars]
    label = f"Buckets of {bucket_mb:g} MB during backward, and the exposed time of each size"
    return (
        f'<div style="min-height:3em">{_sentence(flights, model, model_mb, backward_ms, exposed_ms)}</div>'
        f"{svg.legend(_LANES)}"
        f"{svg.page(drawing, top + _BELOW + _BAR * len(sizes_mb) + 4, label=label, font_size=11)}"
    )


def _sentence(
    flights: list[Flight], model: Overhead, model_mb: float, backward_ms: float, exposed_ms: dict[float, float]
) -> str:
    exposed, formula = exposed_s(flights, backward_ms / 1e3), model.seconds(len(flights), model_mb * 1e6)
    best = min(exposed_ms, key=lambda mb: (round(exposed_ms[mb], 6), mb))
    waited, best_bytes = waited_s(flights), model.best_bytes(model_mb * 1e6)
    left_out = (
        f", but full buckets wait {units.seconds(waited)} for the link, which it leaves out" if waited > 0 else ""
    )
    root = f"; √(s·w·o) is {units.number(best_bytes / 1e6)} MB" if best_bytes == best_bytes else ""
    return (
        f"<b>{len(flights)} buckets</b>: the last one arrives {units.seconds(exposed)} after a backward that sends "
        f"nothing would end. The formula gives {units.seconds(formula)}{left_out}. "
        f"Of the sizes below {best:g} MB is best{root}."
    )


def _lanes(flights: list[Flight], backward_ms: float) -> list[str]:
    """Return two lanes, backward with its calls above the link, and the line where backward alone would end."""
    end_s = flights[-1].end_s
    scale = (WIDTH - LEFT - RIGHT) / end_s
    drawn = [svg.word(0, 20, "backward"), svg.word(0, _LANE + 20, "link")]
    begun_s = 0.0
    for flight in flights:
        spans = (
            (0, begun_s, flight.full_s, "backward"),
            (0, flight.full_s, flight.called_s, "call"),
            (1, flight.start_s, flight.end_s, "on the link"),
        )
        for lane, start_s, stop_s, name in spans:
            if stop_s > start_s:
                place = (LEFT + start_s * scale, _LANE * lane + 4, (stop_s - start_s) * scale, _LANE - 8)
                drawn.append(svg.bar(*place, _LANES[name]))
        begun_s = flight.called_s
    x = LEFT + backward_ms / 1e3 * scale
    drawn.append(svg.line(x, 0, x, 2 * _LANE, stroke_dasharray="4 2"))
    return [*drawn, svg.word(WIDTH - RIGHT + 6, _LANE + 20, units.seconds(end_s))]


def _size(y: int, bucket_mb: float, exposed_ms: float, longest_ms: float, *, chosen: bool) -> list[str]:
    """Return the bar of a size's exposed time, with its name and value; the chosen one stands out."""
    width = (WIDTH - LEFT - RIGHT) * exposed_ms / longest_ms
    color, weight = (canvas.COMMUNICATE, "bold") if chosen else (canvas.IDLE, "normal")
    return [
        svg.word(0, y + 12, f"{bucket_mb:g} MB", font_weight=weight),
        svg.bar(LEFT, y + 2, width, _BAR - 4, color),
        svg.word(LEFT + width + 6, y + 12, units.seconds(exposed_ms / 1e3), font_weight=weight),
    ]


def explore() -> ipywidgets.VBox:
    """Return the sliders with the timeline that they change; they start at XL in float32."""
    import ipywidgets

    long = {"style": {"description_width": "150px"}, "layout": {"width": "400px"}}
    choices = {
        "model_mb": ("gradients, MB", 8000, (100, 500, 1000, 2000, 4000, 8000, 16_000)),
        "parameters": ("weights", 435, (50, 150, 435, 1000)),
        "backward_ms": ("backward, ms", 300, (10, 30, 100, 300, 1000)),
        "overhead_ms": ("o, ms per call", 0.1, (0, 0.01, 0.03, 0.1, 0.3, 1, 3)),
        "gb_per_s": ("w, GB/s of the link", 100, (3, 10, 25, 50, 100, 200, 400)),
        "bucket_mb": ("bucket, MB", 25, SIZES_MB),
    }
    knobs: dict[str, ipywidgets.Widget] = {
        name: ipywidgets.SelectionSlider(options=options, value=value, description=text, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
