"""Sliders over tensor × data parallelism: what of a step is computing, what sending over which links, and what fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from labkit.theory.sizes import GIB
from labkit.theory.step_memory import Shape
from lessons.tensor_parallel.theory import held_elements, kept_bytes, step_s

if TYPE_CHECKING:
    import ipywidgets

NODE = 8  # GPUs
SPLITS = (1, 2, 4, 8, 16, 32)
_VOCABULARY = 32_768  # words; embedding and head are held, and their time is left out
_TRAINING_BYTES = 16  # of a weight: it and its gradient in bfloat16, its float32 copy and AdamW's two moments
_KEPT_FREE = 0.06  # of the memory, for the allocator's gaps and the libraries' own buffers
_LEFT, _RIGHT, _BAR = 150, 190, 26  # pixels of the room at both sides, of a row
_PARTS = {"computing": canvas.COMPUTE, "inside layers": canvas.COMMUNICATE, "gradients, not hidden": canvas.WAIT}


def held_bytes(width: int, layers: int, tokens: int, ranks: int) -> tuple[float, float]:
    """Return what a GPU holds where `ranks` split layers and positions: for weights and their states, for activations.

    `tokens` per GPU: a group of ranks computes those of all its GPUs together.
    """
    inner = 7 * width // 2
    shape = Shape(_VOCABULARY, width, inner, layers, width // 128, ranks, tokens)
    weights = held_elements(width, inner, layers, _VOCABULARY, ranks)
    return _TRAINING_BYTES * weights, kept_bytes(shape, ranks, True, 2)


def picture(
    width: int,
    layers: int,
    gpus: int,
    tokens: int,
    memory_gib: float,
    tflop_per_s: float,
    gb_per_s: float,
    node_gb_per_s: float,
) -> str:
    """Return HTML: a sentence over bars, a step's parts for every split of the GPUs; a node has eight.

    Who splits layers over more GPUs than a node has sends inside layers over the slow link. ✔ leaves 6 % of a GPU's
    memory free.
    """
    parameters = layers * 14.5 * width**2
    steps, held = {}, {}
    for tensor in (each for each in SPLITS if each <= gpus):
        inside = gb_per_s if tensor <= NODE else node_gb_per_s
        across = node_gb_per_s if gpus > NODE else gb_per_s
        rates = {"flop_per_s": 1e12 * tflop_per_s, "tensor_bytes_per_s": 1e9 * inside, "data_bytes_per_s": 1e9 * across}
        steps[tensor] = step_s(parameters, layers, width, tokens * gpus, tensor, gpus // tensor, **rates)
        held[tensor] = held_bytes(width, layers, tokens, tensor)
    fitting = [tensor for tensor in steps if sum(held[tensor]) <= (1 - _KEPT_FREE) * memory_gib * GIB]
    best = min(fitting, key=lambda tensor: sum(steps[tensor]), default=None)
    scale = (WIDTH - _LEFT - _RIGHT) / max(sum(parts) for parts in steps.values())
    drawn = []
    for row, (tensor, seconds) in enumerate(steps.items()):
        y, left = _BAR * row, _LEFT
        weight = "bold" if tensor == best else "normal"
        drawn.append(svg.word(0, y + 16, f"{tensor} × {gpus // tensor} (layers × data)", font_weight=weight))
        for color, part in zip(_PARTS.values(), seconds, strict=True):
            drawn.append(svg.bar(left, y + 3, part * scale, _BAR - 8, color))
            left += part * scale
        size = f"{'✔' if tensor in fitting else '✘'} {units.size(sum(held[tensor]))}"
        drawn.append(svg.word(left + 6, y + 16, f"{units.seconds(sum(seconds))}, {size}", font_weight=weight))
    sentence = f"<b>No split fits into {memory_gib} GiB.</b>"
    if best:
        over = f"layers over {best} GPUs" if best > 1 else "whole layers"
        states, activations = map(units.size, held[best])
        which = "Fastest" if len(fitting) == len(steps) else "Fastest of those that fit (✔)"
        sentence = (
            f"<b>{which}: {over}, {gpus // best} replicas.</b> "
            f"A GPU then holds {states} of weights, gradients and states, and {activations} of activations."
        )
    page = svg.page(drawn, _BAR * len(steps) + 4, label="A step's parts by tensor and data parallelism", font_size=11)
    return f'<div style="min-height:3em">{sentence}</div>{svg.legend(_PARTS)}{page}'


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bars that they change; they start at a width of 8 192 on four nodes of H200."""
    import ipywidgets

    long = {"style": {"description_width": "190px"}, "layout": {"width": "430px"}}
    choices = {
        "width": ("width", 8192, (1024, 2048, 4096, 8192, 16_384)),
        "layers": ("layers", 48, (8, 24, 48, 80)),
        "gpus": ("GPUs", 32, (8, 16, 32, 256)),
        "tokens": ("tokens per GPU", 512, (64, 256, 512, 2048, 8192)),
        "memory_gib": ("memory of a GPU, GiB", 140, (40, 80, 140, 180)),
        "tflop_per_s": ("computing, TFLOP/s", 400, (60, 150, 400, 800)),
        "gb_per_s": ("link in the node, GB/s", 200, (25, 50, 200, 350)),
        "node_gb_per_s": ("link between nodes, GB/s", 25, (3, 12, 25, 50)),
    }
    knobs: dict[str, ipywidgets.Widget] = {
        name: ipywidgets.SelectionSlider(options=options, value=value, description=text, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
