"""Sliders over a queue: depth, kernels, launches and width; when host and GPU work, and which of them waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from lessons.benchmarking.theory import Queue

if TYPE_CHECKING:
    import ipywidgets

_TOKENS = 512  # batch 4, context 128
_FLOOR_US = 2.0  # no kernel is shorter
_SHOWN = 40  # kernels that are drawn
_LEFT, _RIGHT, _LANE = 110, 130, 30  # pixels
_LANES = {"the host launches": canvas.SERIES[2], "the GPU works": canvas.COMPUTE}


def queue(layers: int, kernels_per_layer: int, launch_us: float, width: int, tflops: float) -> Queue:
    """Return the queue of a forward: 16·width² weights a layer, its work shared equally by its kernels."""
    work_us = 2 * 16 * width**2 * _TOKENS / (1e6 * tflops)
    return Queue(layers * kernels_per_layer, launch_us, max(_FLOOR_US, work_us / kernels_per_layer))


def picture(layers: int, kernels_per_layer: int, launch_us: float, width: int, tflops: float, graph: bool) -> str:
    """Return HTML: two sentences over an SVG, the first kernels on two lanes, and both totals as bars below."""
    eager = queue(layers, kernels_per_layer, launch_us, width, tflops)
    shown = Queue(eager.kernels, 0.0, eager.kernel_us) if graph else eager
    drawing = [*_lanes(shown), *_totals(eager, graph)]
    label = f"Host and GPU in a forward of {eager.kernels} kernels"
    return (
        f'<div style="color:{svg.TEXT};min-height:3em">{_sentence(shown, graph)}</div>{svg.legend(_LANES)}'
        f"{svg.page(drawing, 2 * _LANE + 100, label=label, font_size=11)}"
    )


def _sentence(shown: Queue, graph: bool) -> str:
    total = units.seconds(shown.end_us / 1e6)
    sentence = f"<b>{units.count(shown.kernels)} kernels, {total}.</b> The GPU has no work for"
    sentence = f"{sentence} {units.percent(shown.idle_share)} of it: "
    if graph:
        return f"{sentence}one launch started all of them, and only the GPU's work counts."
    each = f"a launch takes {units.number(shown.launch_us)} µs, a kernel {units.number(shown.kernel_us)} µs"
    if shown.launch_bound:
        return f"{sentence}<b>launch-bound</b>, {each}. More layers or kernels cost time; a faster GPU saves none."
    return f"{sentence}<b>the GPU is the limit</b>, {each}. Launches run ahead and cost nothing."


def _lanes(shown: Queue) -> list[str]:
    """Return the first kernels: when the host launches each, and when the GPU runs it."""
    spans = shown.spans[:_SHOWN]
    scale = (WIDTH - _LEFT - _RIGHT) / spans[-1][2]
    drawn = [svg.word(0, 20, "host"), svg.word(0, _LANE + 20, "GPU")]
    for launched, begun, ended in spans:
        begins = launched - shown.launch_us
        drawn.append(
            svg.bar(_LEFT + begins * scale, 4, max(0.5, shown.launch_us * scale - 1), _LANE - 8, canvas.SERIES[2])
        )
        place = (_LEFT + begun * scale, _LANE + 4, max(0.5, (ended - begun) * scale - 1), _LANE - 8)
        drawn.append(svg.bar(*place, canvas.COMPUTE))
    many = f"first {len(spans)} kernels"
    return [*drawn, svg.word(WIDTH - _RIGHT + 8, _LANE + 6, many)]


def _totals(eager: Queue, graph: bool) -> list[str]:
    """Return bars of all launches and of all the GPU's work."""
    totals = {"all launches": eager.kernels * eager.launch_us, "all kernels": eager.kernels * eager.kernel_us}
    scale = (WIDTH - _LEFT - _RIGHT) / max(totals.values())
    drawn = []
    for row, ((name, us), color) in enumerate(zip(totals.items(), _LANES.values(), strict=True)):
        y = 2 * _LANE + 24 + 26 * row
        pale = {"opacity": 0.25} if graph and row == 0 else {}
        drawn += [svg.word(0, y + 14, name), svg.bar(_LEFT, y, us * scale, 20, color, **pale)]
        drawn.append(svg.word(_LEFT + us * scale + 8, y + 14, units.seconds(us / 1e6)))
    return drawn


def explore() -> ipywidgets.VBox:
    """Return the sliders with the two lanes that they change; they begin at the course's smallest size."""
    import ipywidgets

    long = {"style": {"description_width": "150px"}, "layout": {"width": "400px"}}
    choices = {
        "layers": ("layers", 12, (1, 2, 4, 8, 12, 24, 32, 48)),
        "kernels_per_layer": ("kernels per layer", 30, (5, 10, 20, 30, 46, 60)),
        "launch_us": ("a launch, µs", 6, (1, 2, 4, 6, 10, 20, 35, 50)),
        "width": ("width", 768, (256, 512, 768, 1024, 1280, 1600, 2560, 4096, 8192)),
        "tflops": ("the GPU reaches, TFLOP/s", 400, (15, 45, 100, 200, 400, 800)),
    }
    knobs: dict[str, ipywidgets.Widget] = {
        name: ipywidgets.SelectionSlider(options=options, value=value, description=text, **long)
        for name, (text, value, options) in choices.items()
    }
    knobs["graph"] = ipywidgets.Checkbox(False, description="one launch (CUDA graph)", **long)
    return with_picture(knobs, picture)
