"""Sliders over tokens, units and the link: what of a step's gathering and scattering its computing hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from lessons.fsdp_from_scratch.theory import exposed_s, tokens_to_hide

if TYPE_CHECKING:
    import ipywidgets

TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
_LEFT, _RIGHT, _BAR = 110, 130, 24  # pixels of the room at both sides, of a row
_PARTS = {"computing": canvas.COMPUTE, "exposed communication": canvas.COMMUNICATE}


def picture(
    parameters: float, count: int, tokens: int, ranks: int, tflop_per_s: float, gb_per_s: float, call_us: float
) -> str:
    """Return HTML: a sentence over bars, a step's computing and what communication adds to it, by tokens per rank."""
    rates = {"flop_per_s": 1e12 * tflop_per_s, "bytes_per_s": 1e9 * gb_per_s}
    steps = {
        each: exposed_s(parameters * 1e9, count, each, ranks, call_s=call_us / 1e6, **rates)
        for each in sorted({*TOKENS, tokens})
    }
    limit = tokens_to_hide(rates["flop_per_s"], rates["bytes_per_s"], ranks)
    computing, exposed = steps[tokens]
    scale = (WIDTH - _LEFT - _RIGHT) / max(sum(parts) for parts in steps.values())
    drawn = []
    for row, (each, seconds) in enumerate(steps.items()):
        y, left, chosen = _BAR * row, _LEFT, each == tokens
        drawn.append(svg.word(0, y + 15, f"{units.count(each)} tokens", font_weight="bold" if chosen else "normal"))
        for color, part in zip(_PARTS.values(), seconds, strict=True):
            drawn.append(svg.bar(left, y + 3, part * scale, _BAR - 8, color))
            left += part * scale
        drawn.append(svg.word(left + 6, y + 15, f"{units.percent(seconds[1] / sum(seconds))} exposed"))
    sentence = (
        f"<b>{units.percent(exposed / (computing + exposed))} of the step is exposed communication</b>: computing "
        f"takes {units.seconds(computing)}, and {units.seconds(exposed)} are added. By the formula a unit hides from "
        f"{units.count(round(limit))} tokens on, whatever its size."
    )
    page = svg.page(drawn, _BAR * len(steps) + 4, label="Computing and exposed communication by tokens", font_size=11)
    return f'<div style="min-height:3em">{sentence}</div>{svg.legend(_PARTS)}{page}'


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bars that they change; they start at 7 billion parameters on eight GPUs."""
    import ipywidgets

    long = {"style": {"description_width": "170px"}, "layout": {"width": "420px"}}
    choices = {
        "parameters": ("parameters, billions", 7, (1, 2, 7, 13, 34, 70)),
        "count": ("units", 32, (1, 4, 16, 32, 80, 320)),
        "tokens": ("tokens per rank", 2048, TOKENS),
        "ranks": ("ranks", 8, (2, 4, 8, 64, 512)),
        "tflop_per_s": ("computing, TFLOP/s", 400, (20, 60, 150, 400, 800)),
        "gb_per_s": ("link, GB/s", 200, (5, 12, 25, 50, 100, 200, 350)),
        "call_us": ("µs until a call begins", 20, (0, 20, 50, 200)),
    }
    knobs: dict[str, ipywidgets.Widget] = {
        name: ipywidgets.SelectionSlider(options=options, value=value, description=text, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
