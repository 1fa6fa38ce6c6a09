"""Sliders over an epoch: batch, computing, launching, link, overlap, loader; its seconds on 1 to 16 GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from lessons.scaling.theory import Modelled, modelled

if TYPE_CHECKING:
    import ipywidgets

COUNTS = (1, 2, 4, 8, 16)
_LEFT, _RIGHT, _ROW = 70, 230, 30  # pixels: room for the names and for the values, a row's height
_COLORS = {
    "computing": canvas.COMPUTE,
    "launching": "#8DB7CE",
    "exposed all-reduce": canvas.COMMUNICATE,
    "waiting for images": canvas.WAIT,
}


def picture(
    gpu_batch: int, image_us: float, step_ms: float, gb_per_s: float, hidden_percent: float, loader_images_per_s: float
) -> str:
    """Return HTML: a sentence over an SVG with a bar per number of GPUs, 50 000 images each."""
    knobs = {
        "gpu_batch": gpu_batch,
        "image_us": image_us,
        "step_ms": step_ms,
        "gb_per_s": gb_per_s,
        "hidden_share": hidden_percent / 100,
        "loader_images_per_s": loader_images_per_s,
    }
    models = [modelled(gpus, **knobs) for gpus in COUNTS]
    scale = (WIDTH - _LEFT - _RIGHT) / models[0].seconds
    longest = max(model.seconds for model in models)
    scale *= models[0].seconds / longest
    drawn = [part for row, model in enumerate(models) for part in _row(row, model, models[0].seconds, scale)]
    label = f"Seconds of an epoch on 1 to 16 GPUs, {gpu_batch} images per GPU"
    return (
        f'<div style="min-height:2.6em">{_sentence(models)}</div>{svg.legend(_COLORS)}'
        f"{svg.page(drawn, _ROW * len(models) + 4, label=label, font_size=11)}"
    )


def _row(row: int, model: Modelled, alone_s: float, scale: float) -> list[str]:
    parts_s = (model.compute_s, model.launch_s, model.exposed_s, model.input_s)
    drawn, x = [svg.word(0, _ROW * row + 19, f"{model.gpus} GPU{'s' if model.gpus > 1 else ''}")], float(_LEFT)
    for seconds, color in zip(parts_s, _COLORS.values(), strict=True):
        drawn.append(svg.bar(x, _ROW * row + 6, seconds * scale, _ROW - 12, color))
        x += seconds * scale
    efficiency = units.percent(alone_s / model.seconds / model.gpus)
    text = f"{units.seconds(model.seconds)}, {units.number(model.steps, 3)} steps, efficiency {efficiency}"
    return [*drawn, svg.word(x + 6, _ROW * row + 19, text)]


def _sentence(models: list[Modelled]) -> str:
    last = models[-1]
    waits = {"exposed all-reduce": last.exposed_s, "waiting for images": last.input_s, "launching": last.launch_s}
    most = max(waits, key=lambda name: waits[name])
    share = units.percent(waits[most] / last.seconds)
    efficiency = units.percent(models[0].seconds / last.seconds / last.gpus)
    return (
        f"<b>{last.gpus} GPUs: efficiency {efficiency}.</b> Beside computing, most of their epoch is {most}: {share}."
    )


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bars that they change; they begin near an H200 in float32."""
    import ipywidgets

    long = {"style": {"description_width": "170px"}, "layout": {"width": "400px"}}
    choices = {
        "gpu_batch": ("images per GPU and step", 128, (32, 128, 512, 2048)),
        "image_us": ("computing per image, µs", 80, (10, 20, 40, 80, 160, 320)),
        "step_ms": ("launching per step, ms", 3, (0, 1, 3, 6, 10)),
        "gb_per_s": ("link, GB/s", 200, (1, 10, 25, 50, 200, 400)),
        "hidden_percent": ("all-reduce hidden, %", 80, (0, 50, 80, 95, 100)),
        "loader_images_per_s": ("loader per GPU, images/s", 20_000, (2_000, 5_000, 10_000, 20_000, 100_000)),
    }
    knobs = {
        name: ipywidgets.SelectionSlider(description=text, value=value, options=options, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
