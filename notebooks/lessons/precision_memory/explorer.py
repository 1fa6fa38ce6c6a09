"""A slider over numbers: how each format writes one in bits, what it makes of it, and how far its neighbours are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.ink import ink_on
from labkit.charts.knobs import with_picture
from labkit.story import units
from lessons.precision_memory.theory.floats import FORMATS, Format

if TYPE_CHECKING:
    import ipywidgets

_COLORS = {"sign": canvas.SERIES[5], "exponent": canvas.SERIES[1], "mantissa": canvas.SERIES[0]}
LANE, CELL, _LEFT = 34, 14, 110  # pixels of a format's lane, of a bit, and where bits begin
_RIGHT = _LEFT + 33 * CELL + 16


def bits_picture(power: float, digits: float, negative: bool) -> str:
    """Return HTML: the number 2^power × digits over an SVG, a row per format, with its bits, value and error."""
    value = (-1 if negative else 1) * digits * 2.0**power
    drawing = []
    for place, form in enumerate(FORMATS.values()):
        drawing += _row(place, form, value)
    shown = f"<b>{value:.9g}</b> = {'−' if negative else ''}{digits:g} × 2<sup>{power:g}</sup>"
    label = f"The bits of {value:.6g} in {len(FORMATS)} formats"
    return f"<div>{shown}</div>{svg.legend(_COLORS)}{svg.page(drawing, 10 + LANE * len(FORMATS), label=label)}"


def _row(place: int, form: Format, value: float) -> list[str]:
    y, x, drawn = 8 + LANE * place, float(_LEFT), [svg.word(0, 8 + LANE * place + 16, form.name)]
    for part, bits in zip(_COLORS, form.bits(value), strict=True):
        for bit in bits:
            drawn.append(svg.bar(x, y, CELL - 1, 22, _COLORS[part], fill_opacity=1.0 if bit == "1" else 0.25))
            ink = ink_on(_COLORS[part]) if bit == "1" else svg.TEXT  # a faint colour lets the page show
            drawn.append(svg.word(x + CELL / 2 - 0.5, y + 15, bit, ink, text_anchor="middle", font_size=10))
            x += CELL
    return [*drawn, svg.word(_RIGHT, y + 16, _rounded_text(form, value))]


def _rounded_text(form: Format, value: float) -> str:
    near = form.rounded(value)
    if near in (float("inf"), float("-inf")):
        return f"beyond {form.largest:g}"
    if near == 0 and value != 0:
        return f"0: below half of {form.least:.2g}"
    apart = abs(near - value)
    off = f", off by {units.percent(apart / abs(value))}" if apart and abs(apart / value) > 5e-4 else ""
    return f"{near:.8g}, spacing {form.spacing(near):.2g}{off}"


def explore_bits() -> ipywidgets.VBox:
    """Return the knobs with the picture that they change."""
    import ipywidgets

    wide = {"style": {"description_width": "90px"}, "layout": {"width": "380px"}}
    knobs = {
        "power": ipywidgets.IntSlider(value=-7, min=-30, max=20, description="power of two", **wide),
        "digits": ipywidgets.FloatSlider(
            value=1.28, min=1.0, max=1.999, step=0.001, readout_format=".3f", description="digits", **wide
        ),
        "negative": ipywidgets.Checkbox(value=False, description="negative", **wide),
    }
    return with_picture(knobs, bits_picture)
