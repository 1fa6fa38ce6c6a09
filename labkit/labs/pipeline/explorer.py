"""Sliders over the simulator: stages, micro-batches, schedule, backward/forward ratio, a slow stage, transfer time."""

from __future__ import annotations

import ipywidgets

from labkit.charts import canvas
from labkit.labs.pipeline.charts.lanes import COLORS, NAMES, WORDS
from labkit.labs.pipeline.tables.timeline import ideal
from labkit.story import units

WIDTH, LANE, LEFT = 920, 30, 60  # pixels of the drawing, of a lane's height, of the room for its name
NUMBERED = 15  # pixels that a bar must have to hold its micro-batch's number


def picture(schedule: str, ranks: int, micro_batches: int, **knobs) -> str:
    """Give HTML: a sentence with bubble, length and memory over an SVG of the timeline, rank 0 on top.

    The browser draws it, so that a slider feels immediate. The other knobs are those of `ideal`. Raises ValueError
    where the schedule does not take that many micro-batches.
    """
    if schedule == "interleaved" and micro_batches % max(1, micro_batches // ranks):
        raise ValueError(
            f"Interleaved 1F1B takes micro-batches in equal rounds: not {micro_batches} on {ranks} stages."
        )
    table = ideal(schedule, ranks, micro_batches, **knobs)
    scale = (WIDTH - LEFT) / table.attrs["end"]
    drawn = [f'<text x="0" y="{LANE * rank + 20}">rank {rank}</text>' for rank in range(ranks)]
    drawn += [_bar(span, scale) for span in table.itertuples()]
    used = {WORDS[kind]: COLORS[kind] for kind in COLORS if kind in set(table["kind"])}
    legend = " ".join(f'<span style="color:{color}">■</span> {word}' for word, color in used.items())
    about = table.attrs
    return (
        f"<div><b>{NAMES[schedule]}</b>: bubble {units.percent(about['bubble'])}, step "
        f"{units.number(about['end'])} forwards long, rank 0 keeps {units.number(about['in_flight'], 2)} micro-batches "
        f'<span style="float:right">{legend}</span></div><svg viewBox="0 0 {WIDTH} {LANE * ranks + 4}" width="100%" '
        f'font-size="11" font-family="sans-serif" fill="{canvas.INK}">{"".join(drawn)}</svg>'
    )


def _bar(span, scale: float) -> str:
    x, width = LEFT + span.start_ms * scale, (span.end_ms - span.start_ms) * scale
    thin = span.kind == "wait"
    y, height = LANE * span.rank + (10 if thin else 3), LANE - (20 if thin else 5)
    place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"'
    bar = f'<rect {place} fill="{COLORS[span.kind]}" stroke="white" stroke-width="0.6"/>'
    if width < NUMBERED or span.kind not in "FBI":
        return bar
    return (
        f'{bar}<text x="{x + width / 2:.1f}" y="{y + 17}" text-anchor="middle" fill="white">{span.micro_batch}</text>'
    )


def explore() -> ipywidgets.VBox:
    """Give the sliders with the timeline that they change."""
    long = {"style": {"description_width": "140px"}, "layout": {"width": "370px"}}
    names = [(name, key) for key, name in NAMES.items()]
    schedule = ipywidgets.Dropdown(options=names, value="1f1b", description="schedule", **long)
    knobs = {
        "ranks": ipywidgets.IntSlider(4, 1, 8, description="stages", **long),
        "micro_batches": ipywidgets.IntSlider(8, 1, 32, description="micro-batches", **long),
        "ratio": ipywidgets.FloatSlider(value=2.0, min=0.5, max=4.0, step=0.1, description="backward ×", **long),
        "slow": ipywidgets.IntSlider(-1, -1, 7, description="slow stage (-1: none)", **long),
        "slowdown": ipywidgets.FloatSlider(value=2.0, min=1.0, max=4.0, step=0.1, description="slow by ×", **long),
        "transfer": ipywidgets.FloatSlider(value=0.0, min=0.0, max=1.0, step=0.05, description="transfer", **long),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        try:
            shown.value = picture(schedule.value, **{name: knob.value for name, knob in knobs.items()})
        except ValueError as error:
            shown.value = str(error)

    for knob in (schedule, *knobs.values()):
        knob.observe(draw, names="value")
    draw()
    left, right = [schedule, *list(knobs.values())[:3]], list(knobs.values())[3:]
    return ipywidgets.VBox([ipywidgets.HBox([ipywidgets.VBox(left), ipywidgets.VBox(right)]), shown])
