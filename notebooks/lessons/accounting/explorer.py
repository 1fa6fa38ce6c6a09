"""Sliders over the whole account: model, batch, mesh and machine; what a device holds, and what bounds its speed."""

from __future__ import annotations

import math
from math import log10
from typing import TYPE_CHECKING

from labkit.charts import canvas, ledgers, svg
from labkit.charts.knobs import region, with_keys
from labkit.charts.svg import WIDTH
from labkit.story import units
from labkit.theory.sizes import GB
from lessons.accounting.theory import KINDS, NODE, Mesh, Model, held, least_tokens, times

if TYPE_CHECKING:
    import ipywidgets

EXAMPLE = Model(8192, 28672, 80)  # it fits on a node
LEFT, RIGHT = 80, 130  # pixels of the room for names and for the end of lines
_BAR, TOP, HEIGHT = 26, 66, 210  # pixels of the bar, where the curves begin, and how high they are
_TOKENS = (1e3, 1e6)  # of the curves, in all
_DECADES = (1e-2, 1e3)  # ms of the curves
_CURVES = (
    ("compute", canvas.COMPUTE, ""),
    ("weights", canvas.COMMUNICATE, ""),
    ("activations", canvas.COMMUNICATE, "2 4"),
)


def picture(model: Model, mesh: Mesh, tokens: int, device_gb: float) -> str:
    """Return HTML: two sentences over an SVG, what a device holds by kind above a block's times by batch.

    `tokens` are those of all devices; a device's memory is `device_gb`, and the bar is cut at twice that.
    """
    each = held(model, -(-tokens // mesh.fsdp), mesh.fsdp, mesh.tensor, mesh.activation_bytes)
    sizes = {kind: float(size) / GB for kind, size in each.items()}
    fits, bound = _fits(model, sizes, device_gb), _bound(model, mesh, tokens)
    parts = [*_bar(sizes, device_gb), *_axes(), *_curves(model, mesh), *_crossing(model, mesh), *_batch(tokens)]
    described = "what a device holds, by kind, above the times of one block's forward, by batch"
    drawing = svg.page(parts, TOP + HEIGHT + 34, label=described)
    return f'<div style="color:{svg.TEXT}">{fits} {bound}</div>{svg.legend(ledgers.colors(KINDS))}{drawing}'


def _fits(model: Model, sizes: dict[str, float], device_gb: float) -> str:
    total, billions = sum(sizes.values()), units.number(model.parameters / 1e9)
    mark = "✔ fits" if total <= device_gb else "✘ does not fit"
    return f"{billions} billion parameters: a device holds <b>{units.number(total)} GB</b> of {device_gb:g}, {mark}."


def _bound(model: Model, mesh: Mesh, tokens: int) -> str:
    if (least := least_tokens(mesh, model)) == math.inf:
        return "<b>No batch is compute-bound</b>: activations alone take longer than computing."
    bound = "compute-bound" if tokens >= least else "communication-bound"
    return f"Compute-bound from {units.count(round(least))} tokens; with {units.count(tokens)}: <b>{bound}</b>."


def _bar(sizes: dict[str, float], device_gb: float) -> list[str]:
    scale, begun, parts = (WIDTH - LEFT - RIGHT) / (2 * device_gb), 0.0, [svg.word(0, 24, "memory")]
    for kind, size in sizes.items():
        ended = min(begun + size, 2 * device_gb)
        parts.append(svg.bar(LEFT + begun * scale, 6, (ended - begun) * scale, _BAR, ledgers.COLORS[kind]))
        begun = ended
    at, total = LEFT + device_gb * scale, sum(sizes.values())
    text = f"{'» ' if total > 2 * device_gb else ''}{units.number(total)} GB"
    return [
        *parts,
        svg.word(LEFT + begun * scale + 6, 24, text),
        svg.line(at, 0, at, _BAR + 12, stroke_width=1.5),
        svg.word(at + 4, _BAR + 20, f"{device_gb:g} GB"),
    ]


def _axes() -> list[str]:
    """Return the grid and its numbers: ms upwards, tokens across, both logarithmic."""
    parts = [svg.word(0, TOP - 8, "ms per block")]
    for power in range(-2, 4):
        y = _y(10.0**power)
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, canvas.HAIRLINE))
        parts.append(svg.word(LEFT - 6, y + 4, f"{10.0**power:g}", text_anchor="end"))
    for power in range(3, 7):
        parts.append(svg.word(_x(10.0**power), TOP + HEIGHT + 16, units.count(10**power), text_anchor="middle"))
    return [*parts, svg.word(WIDTH - RIGHT, TOP + HEIGHT + 30, "tokens in all", text_anchor="end")]


def _curves(model: Model, mesh: Mesh) -> list[str]:
    """Return a line per part of the time; a dimension of one device sends nothing, and has none."""
    parts = []
    ends = [times(mesh, model, batch) for batch in _TOKENS]
    for place, (name, color, dashes) in enumerate(_CURVES):
        if all(end[place] for end in ends):
            low, high = (_y(1e3 * end[place]) for end in ends)
            parts.append(svg.line(LEFT, low, WIDTH - RIGHT, high, color, stroke_width=2, stroke_dasharray=dashes))
            parts.append(svg.bar(WIDTH - RIGHT + 4, high - 4, 8, 8, color))
            parts.append(svg.word(WIDTH - RIGHT + 16, high + 4, name))
    return parts


def _crossing(model: Model, mesh: Mesh) -> list[str]:
    """Return a dot on the computing's line, where computing begins to cover communication."""
    least = least_tokens(mesh, model)
    if not _TOKENS[0] <= least <= _TOKENS[1]:
        return []
    y = _y(1e3 * times(mesh, model, least).math_s)
    return [f'<circle cx="{_x(least):.1f}" cy="{y:.1f}" r="5" fill="{canvas.SERIES[3]}"/>']


def _batch(tokens: int) -> list[str]:
    at = _x(min(max(tokens, _TOKENS[0]), _TOKENS[1]))
    return [svg.line(at, TOP, at, TOP + HEIGHT, stroke_dasharray="4 3")]


def _x(tokens: float) -> float:
    low, high = map(log10, _TOKENS)
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(tokens) - low) / (high - low)


def _y(ms: float) -> float:
    low, high = map(log10, _DECADES)
    return TOP + HEIGHT * (high - min(max(log10(ms), low), high)) / (high - low)


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bar and the curves that they change."""
    import ipywidgets

    long = {"style": {"description_width": "120px"}, "layout": {"width": "300px"}}

    def pick(name: str, options: tuple, value) -> ipywidgets.SelectionSlider:
        return ipywidgets.SelectionSlider(options=options, value=value, description=name, **long)

    powers = (1, 2, 4, 8)
    model = {
        "d_model": pick("d_model", (1024, 2048, 4096, 8192, 16384, 32768), EXAMPLE.d_model),
        "d_ff": pick("d_ff", (4096, 8192, 16384, 28672, 53248, 106496), EXAMPLE.d_ff),
        "blocks": ipywidgets.IntSlider(EXAMPLE.blocks, 1, 256, description="blocks", **long),
    }
    load = {
        "sequence": pick("sequence", (128, 512, 1024, 2048, 4096, 8192), 1024),
        "batch": ipywidgets.IntSlider(8, 1, 512, description="sequences in all", **long),
    }
    mesh = {
        "fsdp": pick("FSDP, X", powers, NODE.fsdp),
        "tensor": pick("tensor, Y", powers, NODE.tensor),
        "weight_bytes": pick("bytes per weight", (1, 2, 4), 2),
        "activation_bytes": pick("bytes per activation", (1, 2, 4), 2),
    }
    machine = {
        "tflops": pick("C, TFLOP/s", (125, 312, 362, 989, 2250), 989),
        "gb_per_s": pick("W, GB/s one way", (32, 64, 150, 300, 478, 900), 478),
        "device_gb": pick("GPU, GB", (24, 48, 80, 141, 180), 141),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        shape, about, rates = ({name: knob.value for name, knob in group.items()} for group in (model, mesh, machine))
        asked = Mesh(**about, flop_per_s=rates["tflops"] * 1e12, bytes_per_s=rates["gb_per_s"] * 1e9)
        shown.value = region(
            picture(Model(**shape), asked, load["sequence"].value * load["batch"].value, rates["device_gb"])
        )

    groups = (model | load, mesh, machine)
    for knob in (knob for group in groups for knob in group.values()):
        knob.observe(draw, names="value")
    draw()
    return with_keys(ipywidgets.HBox([ipywidgets.VBox(list(group.values())) for group in groups]), shown)
