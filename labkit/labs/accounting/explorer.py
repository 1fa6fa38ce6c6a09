"""Sliders over the whole account: model, batch, mesh and machine; what a device holds, and what bounds its speed."""

from __future__ import annotations

from math import inf, log10

import ipywidgets

from labkit.charts import canvas
from labkit.labs.accounting.charts.memory import COLORS
from labkit.labs.accounting.theory import COURSE_MESH, KINDS, XXL, Mesh, Model, held, least_tokens, times
from labkit.story import units

WIDTH, LEFT, RIGHT = 920, 80, 130  # pixels of the drawing, of the room for names and for the end of lines
BAR, TOP, HEIGHT = 26, 66, 210  # pixels of the bar, where the curves begin, and how high they are
TOKENS = (1e3, 1e6)  # of the curves, in all
DECADES = (1e-2, 1e3)  # ms of the curves
CURVES = (
    ("compute", canvas.COMPUTE, ""),
    ("weights", canvas.COMMUNICATE, ""),
    ("activations", canvas.COMMUNICATE, "2 4"),
)


def picture(model: Model, mesh: Mesh, tokens: int, device_gb: float) -> str:
    """Give HTML: two sentences over an SVG, what a device holds by kind above a block's times by batch.

    `tokens` are those of all devices; a device's memory is `device_gb`, and the bar is cut at twice that.
    """
    each = held(model, -(-tokens // mesh.fsdp), mesh.fsdp, mesh.tensor, mesh.activation_bytes)
    sizes = {kind: float(size) / units.GB for kind, size in each.items()}
    legend = " ".join(f'<span style="color:{COLORS[kind]}">■</span> {kind}' for kind in KINDS)
    return (
        f"<div>{_fits(model, sizes, device_gb)} {_bound(model, mesh, tokens)}</div><div>{legend}</div>"
        f'<svg viewBox="0 0 {WIDTH} {TOP + HEIGHT + 34}" width="100%" font-size="12" font-family="sans-serif" '
        f'fill="{canvas.INK}">{_bar(sizes, device_gb)}{_curves(model, mesh, tokens)}</svg>'
    )


def _fits(model: Model, sizes: dict[str, float], device_gb: float) -> str:
    total, billions = sum(sizes.values()), units.number(model.parameters / 1e9)
    mark = "✔ fits" if total <= device_gb else "✘ does not fit"
    return f"{billions} billion parameters: a device holds <b>{units.number(total)} GB</b> of {device_gb:g}, {mark}."


def _bound(model: Model, mesh: Mesh, tokens: int) -> str:
    at_once, in_turn = (least_tokens(mesh, model, way) for way in (True, False))
    if at_once == inf:
        return "<b>No batch is compute-bound</b>: activations alone take longer than computing."
    least = [units.count(round(bound)) for bound in (at_once, in_turn)]
    said = f"Compute-bound from {least[0]} tokens (at once), {least[1]} (in turn)"
    reached = "both ways" if tokens >= in_turn else "at once" if tokens >= at_once else "neither way"
    return f"{said}; with {units.count(tokens)}: <b>{reached}</b>."


def _bar(sizes: dict[str, float], device_gb: float) -> str:
    scale, begun, parts = (WIDTH - LEFT - RIGHT) / (2 * device_gb), 0.0, []
    for kind, size in sizes.items():
        ended = min(begun + size, 2 * device_gb)
        parts.append(
            f'<rect x="{LEFT + begun * scale:.1f}" y="6" width="{(ended - begun) * scale:.1f}" height="{BAR}" '
            f'fill="{COLORS[kind]}"/>'
        )
        begun = ended
    line, total = LEFT + device_gb * scale, sum(sizes.values())
    said = f"{'» ' if total > 2 * device_gb else ''}{units.number(total)} GB"
    words = (
        f'<text x="0" y="24">memory</text><text x="{LEFT + begun * scale + 6:.1f}" y="24">{said}</text>'
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="0" y2="{BAR + 12}" stroke="{canvas.INK}" stroke-width="1.5"/>'
        f'<text x="{line + 4:.1f}" y="{BAR + 20}">{device_gb:g} GB</text>'
    )
    return "".join([*parts, words])


def _curves(model: Model, mesh: Mesh, tokens: int) -> str:
    parts = [f'<text x="0" y="{TOP - 8}">ms a block</text>']
    for power in range(-2, 4):
        y = _y(10.0**power)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{canvas.HAIRLINE}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for power in range(3, 7):
        parts.append(
            f'<text x="{_x(10.0**power):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
            f"{units.count(10**power)}</text>"
        )
    ends = [times(mesh, model, batch) for batch in TOKENS]
    for place, (name, color, dashes) in enumerate(CURVES):
        if not all(end[place] for end in ends):
            continue  # a dimension of one device sends nothing
        low, high = (_y(1e3 * end[place]) for end in ends)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{low:.1f}" y2="{high:.1f}" stroke="{color}" '
            f'stroke-width="2" stroke-dasharray="{dashes}"/>'
            f'<text x="{WIDTH - RIGHT + 6}" y="{high + 4:.1f}" fill="{color}">{name}</text>'
        )
    for at_once, color in ((True, canvas.SERIES[2]), (False, canvas.SERIES[5])):
        if TOKENS[0] <= (least := least_tokens(mesh, model, at_once)) <= TOKENS[1]:
            y = _y(1e3 * times(mesh, model, least).math_s)
            parts.append(f'<circle cx="{_x(least):.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')
    here = _x(min(max(tokens, TOKENS[0]), TOKENS[1]))
    parts.append(
        f'<line x1="{here:.1f}" x2="{here:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="{canvas.INK}" '
        f'stroke-dasharray="4 3"/>'
        f'<text x="{WIDTH - RIGHT}" y="{TOP + HEIGHT + 30}" text-anchor="end">tokens in all</text>'
    )
    return "".join(parts)


def _x(tokens: float) -> float:
    low, high = map(log10, TOKENS)
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(tokens) - low) / (high - low)


def _y(ms: float) -> float:
    low, high = map(log10, DECADES)
    return TOP + HEIGHT * (high - min(max(log10(ms), low), high)) / (high - low)


def explore() -> ipywidgets.VBox:
    """Give the sliders with the bar and the curves that they change."""
    long = {"style": {"description_width": "120px"}, "layout": {"width": "300px"}}

    def pick(name: str, options: tuple, value) -> ipywidgets.SelectionSlider:
        return ipywidgets.SelectionSlider(options=options, value=value, description=name, **long)

    powers, axes = tuple(2**power for power in range(9)), (1, 2, 3)
    model = {
        "d_model": pick("d_model", (1024, 2048, 4096, 8192, 16384, 32768), XXL.d_model),
        "d_ff": pick("d_ff", (4096, 8192, 16384, 28672, 53248, 106496), XXL.d_ff),
        "blocks": ipywidgets.IntSlider(XXL.blocks, 1, 256, description="blocks", **long),
    }
    load = {
        "sequence": pick("sequence", (128, 512, 1024, 2048, 4096, 8192), 1024),
        "batch": ipywidgets.IntSlider(32, 1, 512, description="sequences in all", **long),
    }
    mesh = {
        "fsdp": pick("N_FSDP = X", powers, COURSE_MESH.fsdp),
        "tensor": pick("N_TP = Y", powers[:7], COURSE_MESH.tensor),
        "fsdp_axes": pick("M_X", axes, COURSE_MESH.fsdp_axes),
        "tensor_axes": pick("M_Y", axes, COURSE_MESH.tensor_axes),
        "weight_bytes": pick("bytes a weight", (1, 2, 4), 2),
        "activation_bytes": pick("bytes an activation", (1, 2, 4), 2),
    }
    machine = {
        "tflops": pick("C, TFLOP/s", (125, 312, 362, 460, 989, 2250), 460),
        "gb_per_s": pick("W, GB/s an axis", (32, 90, 180, 300, 478, 956), 180),
        "device_gb": pick("device, GB", (24, 40, 80, 95, 141, 180), 95),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        shape, about, rates = ({name: knob.value for name, knob in group.items()} for group in (model, mesh, machine))
        asked = Mesh(**about, flop_per_s=rates["tflops"] * 1e12, axis_bytes_per_s=rates["gb_per_s"] * 1e9)
        shown.value = picture(Model(**shape), asked, load["sequence"].value * load["batch"].value, rates["device_gb"])

    groups = (model | load, mesh, machine)
    for knob in (knob for group in groups for knob in group.values()):
        knob.observe(draw, names="value")
    draw()
    return ipywidgets.VBox([ipywidgets.HBox([ipywidgets.VBox(list(group.values())) for group in groups]), shown])
