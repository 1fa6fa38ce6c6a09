"""Sliders over the simulator: stages, micro-batches, schedule, chunks, a slow stage and more; answers to questions."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.charts import svg
from labkit.charts.ink import ink_on
from labkit.charts.knobs import with_picture
from labkit.provenance import fact
from labkit.story import units
from labkit.story.verdict import folded
from labkit.story.words import as_table, listed
from lessons.pipeline.charts import COLORS, NAMES, kept_micro_batches, words_used
from lessons.pipeline.tables.timeline import ideal
from lessons.pipeline.theory.schedules import SCHEDULE_NAMES

if TYPE_CHECKING:
    import ipywidgets

_LANE, _LEFT = 30, 60  # pixels of a lane's height, of the room for its name
_TENTH = 0.1
_NUMBERED = 15  # pixels that a bar must have to hold its micro-batch's number


def picture(schedule: str, ranks: int, micro_batches: int, **knobs: Any) -> str:
    """Return HTML: a sentence with bubble, length and memory over an SVG of the timeline, rank 0 on top.

    The browser draws it, so that a slider feels immediate. The other knobs are those of `ideal`. Raises ValueError
    where the schedule does not take that many micro-batches.
    """
    if schedule == "interleaved" and micro_batches % max(1, micro_batches // ranks):
        numbers = f"not {micro_batches} on {ranks} stages"
        raise ValueError(f"Interleaved 1F1B takes micro-batches in equal rounds: {numbers}.")
    table = ideal(schedule, ranks, micro_batches, **knobs)
    end = fact(table, "end")
    drawn = [svg.word(0, _LANE * rank + 20, f"rank {rank}") for rank in range(ranks)]
    drawn += [_bar(span, (svg.WIDTH - _LEFT) / end) for span in table.itertuples()]
    sentence = (
        f"{NAMES[schedule]}: bubble {units.percent(fact(table, 'bubble'))}, step {units.number(end)} forwards long, "
        f"{kept_micro_batches(table)}"
    )
    timeline = svg.page(drawn, _LANE * ranks + 4, label=sentence, font_size=11)
    return f"<div>{sentence}</div>{svg.legend(words_used(table))}{timeline}"


def _bar(span: Any, scale: float) -> str:
    x, width = _LEFT + span.start_ms * scale, (span.end_ms - span.start_ms) * scale
    thin = span.kind == "wait"
    y, height = _LANE * span.rank + (10 if thin else 3), _LANE - (20 if thin else 5)
    bar = svg.bar(x, y, width, height, COLORS[span.kind], stroke="white", stroke_width=0.6)
    if width < _NUMBERED or span.kind not in "FBI":
        return bar
    ink = ink_on(COLORS[span.kind])
    return bar + svg.word(x + width / 2, y + 17, span.micro_batch, ink, text_anchor="middle")


def _picture_or_reason(**knobs: Any) -> str:
    try:
        return picture(**knobs)
    except ValueError as error:
        return str(error)


def explore() -> ipywidgets.VBox:
    """Return the sliders with the timeline that they change."""
    import ipywidgets

    long: dict[str, Any] = {"style": {"description_width": "140px"}, "layout": {"width": "370px"}}
    names = [(name, key) for key, name in NAMES.items() if key != "yours"]
    knobs = {
        "schedule": ipywidgets.Dropdown(options=names, value="1f1b", description="schedule", **long),
        "ranks": ipywidgets.IntSlider(4, 1, 8, description="stages", **long),
        "micro_batches": ipywidgets.IntSlider(8, 1, 32, description="micro-batches", **long),
        "chunks": ipywidgets.IntSlider(3, 1, 4, description="chunks, interleaved", **long),
        "ratio": ipywidgets.FloatSlider(value=2.0, min=0.5, max=4.0, step=0.1, description="backward ×", **long),
        "slow": ipywidgets.IntSlider(-1, -1, 7, description="slow stage (-1: none)", **long),
        "slowdown": ipywidgets.FloatSlider(value=2.0, min=1.0, max=4.0, step=0.1, description="slow by ×", **long),
        "transfer": ipywidgets.FloatSlider(value=0.0, min=0.0, max=1.0, step=0.05, description="transfer", **long),
    }
    return with_picture(knobs, _picture_or_reason)


def slider_answers() -> Markdown:
    """Return the answers to the questions above the sliders, folded: as the simulator computes them."""
    enough = next(m for m in count(4) if round(fact(ideal("1f1b", 4, m), "bubble"), 9) < _TENTH)
    bubbles = [units.percent(fact(ideal("1f1b", 4, m), "bubble")) for m in (enough - 1, enough)]
    steps = [
        (SCHEDULE_NAMES[key], *(fact(ideal(key, chunks=3, slow=slow, slowdown=2.0), "end") for slow in (-1, 2)))
        for key in NAMES
        if key != "forward_only"
    ]
    table = pd.DataFrame(steps, columns=["schedule", "equal stages, forwards", "stage 2 slow by 2, forwards"])
    slow = table.iloc[:, -1]
    helping = listed(table.loc[slow <= slow.min() + 1e-6, "schedule"])
    first = f"From {enough} on: the bubble is {bubbles[1]}; with {enough - 1} it is {bubbles[0]}."
    second = f"With 8 micro-batches, {helping} have the shortest step:\n\n{as_table(table)}"
    return Markdown(
        folded("How many micro-batches does 1F1B need on 4 stages?", first)
        + "\n"
        + folded("Which schedule still helps if stage 2 is slow?", second)
    )
