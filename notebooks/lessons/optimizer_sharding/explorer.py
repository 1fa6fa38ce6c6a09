"""Sliders over the stages: model, ranks, optimizer and precision, and what a rank then holds and sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, ledgers, svg
from labkit.charts.knobs import with_picture
from labkit.story import units
from labkit.theory.sizes import GB
from labkit.theory.transformer import SIZES, transformer
from lessons.optimizer_sharding.theory import PRECISIONS, STAGES, Stage, stage

if TYPE_CHECKING:
    import ipywidgets

OPTIMIZERS = {"SGD": 0, "SGD, momentum": 4, "AdamW": 8}  # bytes of states per element
_COUNTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
ITEMS = {"parameters": "parameters", "gradients": "gradients", "states": "optimizer"}  # of a Stage → of a ledger
LANE, _LEFT, MIDDLE = 32, 70, 560  # pixels of a bar's lane, where held and sent begin
HELD, SENT = 380, 250  # pixels of the longest bars


def picture(size: str, ranks: int, optimizer: str, precision: str) -> str:
    """Return HTML: a sentence over an SVG, a row per stage; left what a rank holds, right what it sends per step."""
    elements = transformer(*SIZES[size][:3]).parameters
    stages = {name: stage(name, elements, ranks, OPTIMIZERS[optimizer], precision) for name in STAGES}
    most_held = max(stage_of_zero.held for stage_of_zero in stages.values())
    most_sent = max(stage_of_zero.sent for stage_of_zero in stages.values()) or 1.0
    drawing = [svg.word(_LEFT, 12, "GB per rank"), svg.word(MIDDLE, 12, "GB through its link per step")]
    for place, name in enumerate(STAGES):
        drawing += _row(place, name, stages[name], HELD / most_held, SENT / most_sent)
    colors = ledgers.colors(ITEMS.values()) | {"sent per step": canvas.COMMUNICATE}
    label = f"What each stage of ZeRO holds and sends for {size} on {ranks} ranks"
    return (
        f"<div>{_sentence(size, ranks, optimizer, stages)}</div>{svg.legend(colors)}"
        f"{svg.page(drawing, 20 + LANE * len(STAGES), label=label)}"
    )


def _sentence(size: str, ranks: int, optimizer: str, stages: dict[str, Stage]) -> str:
    saved = stages["ddp"].held - stages["ours"].held
    where = f"<b>{size}</b> under {optimizer} on {ranks} rank{'s' if ranks > 1 else ''}"
    if saved <= 0:
        return f"{where}: sharding states saves nothing, for there is {'one rank' if ranks == 1 else 'no state'}."
    share = units.percent(saved / stages["ddp"].held)
    sent_ratio = units.times(stages["ours"].sent / stages["zero1"].sent)
    saving = f"{units.number(saved / GB)} GB, {share}"
    return f"{where}: sharding states saves {saving}; ours sends {sent_ratio} ZeRO-1's bytes."


def _row(place: int, name: str, of_stage: Stage, held_scale: float, sent_scale: float) -> list[str]:
    """Return a stage's name, its bar of what is held, item by item, and its bar of what is sent, with their values."""
    y, x = 20 + LANE * place, float(_LEFT)
    drawn = [svg.word(0, y + 19, STAGES[name])]
    for part, item in ITEMS.items():
        width = getattr(of_stage, part) * held_scale
        drawn.append(svg.bar(x, y + 5, width, LANE - 10, ledgers.COLORS[item]))
        x += width
    sent_width = of_stage.sent * sent_scale
    return [
        *drawn,
        svg.word(x + 6, y + 19, units.number(of_stage.held / GB)),
        svg.bar(MIDDLE, y + 5, sent_width, LANE - 10, canvas.COMMUNICATE),
        svg.word(MIDDLE + sent_width + 6, y + 19, units.number(of_stage.sent / GB)),
    ]


def explore() -> ipywidgets.VBox:
    """Return the knobs with the picture that they change."""
    import ipywidgets

    wide = {"style": {"description_width": "90px"}, "layout": {"width": "370px"}}
    knobs = {
        "size": ipywidgets.Dropdown(options=list(SIZES), value="xl", description="model", **wide),
        "ranks": ipywidgets.SelectionSlider(options=_COUNTS, value=2, description="ranks", **wide),
        "optimizer": ipywidgets.Dropdown(options=list(OPTIMIZERS), value="AdamW", description="optimizer", **wide),
        "precision": ipywidgets.Dropdown(options=list(PRECISIONS), value="float32", description="precision", **wide),
    }
    return with_picture(knobs, picture)
