"""Sliders over the stages: model, ranks, optimizer and precision, and what a rank then holds and sends."""

from __future__ import annotations

import ipywidgets

from labkit.charts import canvas
from labkit.charts.knobs import with_picture
from labkit.labs.optimizer_sharding.charts.memory import STAGES
from labkit.labs.optimizer_sharding.theory import PRECISIONS, Stage, stage
from labkit.story import units
from labkit.theory.transformer import SIZES, transformer

OPTIMIZERS = {"SGD": 0, "SGD, momentum": 4, "AdamW": 8}  # bytes of states an element
COUNTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
COLORS = {"parameters": "#0072B2", "gradients": "#D55E00", "states": "#009E73"}
WIDTH, LANE, LEFT, MIDDLE = 920, 32, 70, 560  # pixels of the drawing, a bar's lane, where held and sent begin
HELD, SENT = 380, 250  # pixels of the longest bars


def picture(size: str, ranks: int, optimizer: str, precision: str) -> str:
    """Return HTML: a sentence over an SVG, a row a stage; left what a rank holds, right what it sends in a step."""
    elements = transformer(*SIZES[size][:3]).parameters
    found = {name: stage(name, elements, ranks, OPTIMIZERS[optimizer], precision) for name in STAGES}
    most = max(one.held for one in found.values())
    sent = max(one.sent for one in found.values()) or 1.0
    rows = [_row(place, name, found[name], HELD / most, SENT / sent) for place, name in enumerate(STAGES)]
    legend = " ".join(f'<span style="color:{color}">■</span> {item}' for item, color in COLORS.items())
    legend += f' <span style="color:{canvas.COMMUNICATE}">■</span> sent in a step'
    heads = f'<text x="{LEFT}" y="12">GiB on a rank</text><text x="{MIDDLE}" y="12">GB through its link a step</text>'
    return (
        f"<div>{_sentence(size, ranks, optimizer, found)}</div><div>{legend}</div>"
        f'<svg viewBox="0 0 {WIDTH} {20 + LANE * len(rows)}" width="100%" font-size="12" font-family="sans-serif" '
        f'fill="{canvas.INK}">{heads}{"".join(rows)}</svg>'
    )


def _sentence(size: str, ranks: int, optimizer: str, found: dict[str, Stage]) -> str:
    saved = found["ddp"].held - found["ours"].held
    where = f"<b>{size}</b> under {optimizer} on {ranks} rank{'s' if ranks > 1 else ''}"
    if saved <= 0:
        return f"{where}: sharding states saves nothing, for there is {'one rank' if ranks == 1 else 'no state'}."
    share = units.percent(saved / found["ddp"].held)
    more = units.times(found["ours"].sent / found["zero1"].sent)
    return f"{where}: sharding states saves {units.size(saved)}, {share}; ours sends {more} ZeRO-1's bytes."


def _row(place: int, name: str, one: Stage, held_scale: float, sent_scale: float) -> str:
    y, x, parts = 20 + LANE * place, float(LEFT), [f'<text x="0" y="{20 + LANE * place + 19}">{STAGES[name]}</text>']
    for item, color in COLORS.items():
        width = getattr(one, item) * held_scale
        parts.append(_bar(x, y, width, color))
        x += width
    parts.append(f'<text x="{x + 6:.1f}" y="{y + 19}">{units.number(one.held / units.GIB)}</text>')
    parts.append(_bar(MIDDLE, y, one.sent * sent_scale, canvas.COMMUNICATE))
    label = MIDDLE + one.sent * sent_scale + 6
    parts.append(f'<text x="{label:.1f}" y="{y + 19}">{units.number(one.sent / units.GB)}</text>')
    return "".join(parts)


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y + 5}" width="{width:.1f}" height="{LANE - 10}" fill="{color}"/>'


def explore() -> ipywidgets.VBox:
    """Return the knobs with the picture that they change."""
    wide = {"style": {"description_width": "90px"}, "layout": {"width": "370px"}}
    knobs = {
        "size": ipywidgets.Dropdown(options=list(SIZES), value="xl", description="model", **wide),
        "ranks": ipywidgets.SelectionSlider(options=COUNTS, value=2, description="ranks", **wide),
        "optimizer": ipywidgets.Dropdown(options=list(OPTIMIZERS), value="AdamW", description="optimizer", **wide),
        "precision": ipywidgets.Dropdown(options=list(PRECISIONS), value="float32", description="precision", **wide),
    }
    return with_picture(knobs, picture)
