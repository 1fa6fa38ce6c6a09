"""Sliders over a cluster: link, nodes, GPUs per node, micro-batches; the efficiency of four strategies as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import with_picture
from labkit.charts.svg import WIDTH
from labkit.story import units
from lessons.beyond_the_node.theory import BITS, STRATEGIES, Levels, Link, Step, step_link_bytes, step_of

if TYPE_CHECKING:
    import ipywidgets

NAMES = {"ddp": "DDP, flat ring", "hierarchical": "DDP, two levels", "fsdp": "FSDP", "hsdp": "HSDP"}
INSIDE = Link(3e-6, 300.0)  # a node with NVLink
_LEFT, _RIGHT, _ROW = 120, 330, 30  # pixels: room for the names and for the values, a row's height
_COLORS = {"computing": canvas.COMPUTE, "communication that nothing hides": canvas.COMMUNICATE}


def picture(
    gbit_per_s: float,
    alpha_us: float,
    nodes: int,
    per_node: int,
    accumulation: int,
    compute_ms: float,
    gradient_mb: float,
    calls: int,
) -> str:
    """Return HTML: a sentence over an SVG with a bar per strategy, its whole length one optimizer step.

    MB are 10^6 bytes; an exchange has `calls` messages (buckets, or blocks). Two thirds of a micro-batch's computing
    can hide communication.
    """
    levels = Levels(INSIDE, Link(alpha_us / 1e6, gbit_per_s / BITS), nodes, per_node)
    size = gradient_mb * 1e6
    steps = {
        name: step_of(name, levels, compute_ms / 1e3, size, accumulation=accumulation, calls=calls, overlap=2 / 3)
        for name in NAMES
    }
    sent = {name: step_link_bytes(name, size, nodes, per_node, accumulation) for name in NAMES if name in STRATEGIES}
    drawn = [part for row, name in enumerate(NAMES) for part in _row(row, name, steps[name], sent[name])]
    label = f"Efficiency of four strategies on {nodes} nodes of {per_node} GPUs"
    return (
        f'<div style="min-height:2.6em">{_sentence(steps, nodes, per_node)}</div>{svg.legend(_COLORS)}'
        f"{svg.page(drawn, _ROW * len(NAMES) + 4, label=label, font_size=11)}"
    )


def _row(row: int, name: str, step: Step, sent_bytes: float) -> list[str]:
    width, y = WIDTH - _LEFT - _RIGHT, _ROW * row
    computing = width * step.efficiency
    text = (
        f"{units.percent(step.efficiency)} of {units.seconds(step.step_s)}, "
        f"{units.number(sent_bytes / 1e6)} MB out of a node per step"
    )
    return [
        svg.word(0, y + 19, NAMES[name]),
        svg.bar(_LEFT, y + 6, computing, _ROW - 12, _COLORS["computing"]),
        svg.bar(_LEFT + computing, y + 6, width - computing, _ROW - 12, canvas.COMMUNICATE),
        svg.word(_LEFT + width + 8, y + 19, text),
    ]


def _sentence(steps: dict[str, Step], nodes: int, per_node: int) -> str:
    best, worst = (choose(steps, key=lambda name: steps[name].efficiency) for choose in (max, min))
    cluster = f"<b>{nodes * per_node} GPUs on {nodes} node{'s' if nodes > 1 else ''}: "
    if steps[best].efficiency - steps[worst].efficiency < 0.005:
        return f"{cluster}all four strategies reach {units.percent(steps[best].efficiency)}.</b>"
    return (
        f"{cluster}{NAMES[best]} reaches {units.percent(steps[best].efficiency)}</b>, {NAMES[worst]} "
        f"{units.percent(steps[worst].efficiency)}."
    )


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bars that they change; they begin with two nodes and one 100 Gbit/s link each."""
    import ipywidgets

    long = {"style": {"description_width": "190px"}, "layout": {"width": "420px"}}
    choices = {
        "gbit_per_s": ("link of a node, Gbit/s", 100, (1, 10, 25, 100, 200, 400, 1600, 3200)),
        "alpha_us": ("latency per hop between, µs", 10, (2, 5, 10, 20, 50, 100)),
        "nodes": ("nodes", 2, (1, 2, 4, 8, 64, 512, 2048)),
        "per_node": ("GPUs per node", 8, (1, 2, 4, 8)),
        "accumulation": ("micro-batches per step", 1, (1, 2, 4, 8, 16)),
        "compute_ms": ("computing per micro-batch, ms", 100, (10, 30, 100, 300, 1000)),
        "gradient_mb": ("gradients, MB", 1550, (45, 500, 1550, 14_000, 140_000)),
        "calls": ("messages per exchange", 1, (1, 10, 37, 100, 1000)),
    }
    knobs = {
        name: ipywidgets.SelectionSlider(description=text, value=value, options=options, **long)
        for name, (text, value, options) in choices.items()
    }
    return with_picture(knobs, picture)
