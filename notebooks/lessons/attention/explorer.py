"""A slider over FlashAttention-2's steps: which tile is on, and what its rows keep before and after."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from labkit.charts import canvas, svg
from labkit.charts.ink import ink_on, shade
from labkit.charts.knobs import region, with_keys
from lessons.attention.charts import BEFORE, KEPT, MASKED
from lessons.attention.theory import SKIPPED, Running, Step, example, tiled

if TYPE_CHECKING:
    import ipywidgets

SIZES = (2, 4, 8)
CELL, _LANE = 20, 38  # pixels of a score, of a row's lane
_LEFT, _TOP, _RIGHT = 24, 34, 380  # pixels where the matrix begins, and where the rows' lanes do
_COLUMN, _BAR = 108, 96  # pixels of a column, of its longest bars together
_FACTOR = 60  # pixels of the column that holds exp(m_old − m_new)


def picture(step: int, tile_rows: int, tile_columns: int, causal: bool) -> str:
    """Return HTML: a sentence with what the step does over an SVG, the matrix on the left, its rows on the right.

    Steps count from 1. A tile that is still to come is white, for its scores do not exist yet.
    """
    scores, values = example()
    steps = tiled(scores, values, tile_rows, tile_columns, causal)
    now, levels = steps[step - 1], [score for row in scores for score in row]
    cells = [part for place, other in enumerate(steps) for part in _tile(other, place < step, other is now, levels)]
    lanes = [part for place in range(len(now.rows)) for part in _lane(now, place, _reach(steps))]
    height = _TOP + CELL * len(scores) + 4
    where = f"<b>Step {step} of {len(steps)}</b>, queries {_span(now.rows)}, keys {_span(now.columns)}, {now.kind}"
    parts = [*_heads(len(scores)), *cells, _frame(now), *lanes]
    drawing = svg.page(parts, height, label=f"the tile of step {step} and what its rows keep", font_size=11)
    sentence = f'<div style="min-height:3em;color:{svg.TEXT}">{where}: {_sentence(steps, step - 1)}</div>'
    return f'{sentence}<div style="color:{svg.TEXT}">{_legend()}</div>{drawing}'


def _sentence(steps: list[Step], place: int) -> str:
    now = steps[place]
    if now.kind == SKIPPED:
        return "all keys come after all queries: skipped, no work."
    done = all(step.kind == SKIPPED for step in steps[place + 1 :] if step.rows == now.rows)
    end = " These queries are done: o / l is their output, m + ln l their log-sum-exp." if done else ""
    rising = sorted((factor, row) for row, factor in enumerate(now.factors) if 0 < factor < 1)
    if now.columns[0] == 0:
        return f"nothing was summed before, so m, l and o are this tile's own.{end}"
    if not rising:
        return f"no maximum rises, so the tile's part is added and what was summed before stays as it is.{end}"
    factor, row = rising[0]
    old, new = (_number(kept[row].maximum) for kept in (now.before, now.after))
    others = f", and likewise in {len(rising) - 1} more of these rows" if rising[1:] else ""
    return (
        f"query {now.rows[row]}'s maximum rises from {old} to {new}, so what was summed before is multiplied by "
        f"{_number(factor)}{others}.{end}"
    )


def _span(places: range) -> str:
    return f"{places[0]}–{places[-1]}"


def _number(value: float, places: int = 2) -> str:
    return "−∞" if value == -math.inf else f"{value:.{places}f}".replace("-", "−")


def _legend() -> str:
    marks = {
        "done": ("■", shade(0.6)),
        "this step": ("▣", svg.TEXT),
        "to come": ("□", svg.TEXT),
        "masked": ("■", MASKED),
        "skipped": ("╳", canvas.QUIET),
        "before": ("▬", BEFORE),
        "after": ("▬", KEPT),
    }
    return " &nbsp; ".join(f'<span style="color:{color}">{mark}</span> {name}' for name, (mark, color) in marks.items())


def _heads(length: int) -> list[str]:
    middle: dict[str, Any] = {"text_anchor": "middle", "font_size": 9}
    heads = []
    for place in range(length):
        along = CELL * (place + 0.5)
        heads.append(svg.word(_LEFT + along, _TOP - 4, place, **middle))
        heads.append(svg.word(_LEFT - 10, _TOP + along + 3, place, **middle))
    names = {_LEFT: "keys →", _RIGHT: "query", _column(1) - _FACTOR: "rescaled"}
    names |= {_column(place): name for place, name in enumerate(("maximum m", "sum l", "output o[0]", "output o[1]"))}
    return [*heads, *(svg.word(x, 12, name) for x, name in names.items())]


def _column(place: int) -> int:
    """Return where a column begins: m, then behind the factor l and the parts of o."""
    return _RIGHT + 44 + _COLUMN * place + (_FACTOR if place else 0)


def _tile(step: Step, visited: bool, current: bool, levels: list[float]) -> list[str]:
    if step.kind == SKIPPED:
        x, y, width, height = _box(step)
        cross = f"M{x} {y}l{width} {height}m0 {-height}l{-width} {height}"
        return [
            svg.bar(x, y, width, height, MASKED, stroke="white"),
            f'<path d="{cross}" stroke="{canvas.QUIET}" stroke-width="0.7"/>',
        ]
    low, high = min(levels), max(levels)
    parts = []
    for row, line in zip(step.rows, step.scores, strict=True):
        for column, score in zip(step.columns, line, strict=True):
            x, y, level = _LEFT + CELL * column, _TOP + CELL * row, (score - low) / (high - low)
            fill = MASKED if score == -math.inf else shade(level) if visited else svg.PAPER
            parts.append(svg.bar(x, y, CELL, CELL, fill, stroke=canvas.HAIRLINE, stroke_width=0.5))
            if current and score != -math.inf:
                number, ink = _number(score, 1), ink_on(shade(level))
                parts.append(svg.word(x + CELL / 2, y + 13, number, ink, text_anchor="middle", font_size=8.5))
    return parts


def _box(step: Step) -> tuple[int, int, int, int]:
    """Return a tile's x, y, width and height in pixels."""
    place = _LEFT + CELL * step.columns[0], _TOP + CELL * step.rows[0]
    return *place, CELL * len(step.columns), CELL * len(step.rows)


def _frame(step: Step) -> str:
    return svg.bar(*_box(step), "none", stroke=svg.TEXT, stroke_width=2.5)


def _kept(row: Running) -> tuple[float, ...]:
    return (row.maximum, row.total, *row.output)


def _reach(steps: list[Step]) -> list[tuple[float, float]]:
    """Return the least and the most that m, l and each part of o ever are, 0 among them: their bars' common scale."""
    columns = zip(*(_kept(row) for step in steps for row in step.after), strict=True)
    return [(min(0.0, *column), max(0.0, *column)) for column in columns]


def _lane(step: Step, place: int, reach: list[tuple[float, float]]) -> list[str]:
    y, factor = _TOP + _LANE * place, step.factors[place]
    parts = [svg.word(_RIGHT, y + 16, step.rows[place])]
    pairs = zip(_kept(step.before[place]), _kept(step.after[place]), reach, strict=True)
    for column, (before, after, (low, high)) in enumerate(pairs):
        x, scale = _column(column), _BAR / (high - low)
        parts.append(svg.word(x, y + 12, f"{_number(before)} → {_number(after)}"))
        for lower, value, color in ((17, before, BEFORE), (23, after, KEPT)):
            start, end = sorted((0.0, max(value, low)))
            parts.append(svg.bar(x + (start - low) * scale, y + lower, (end - start) * scale, 5, color))
    x, text = _column(1) - _FACTOR, f"× {_number(factor)}"
    bold = svg.word(x, y + 12, text, font_weight="bold")
    return [*parts, bold if 0 < factor < 1 else svg.word(x, y + 12, text)]


def explore() -> ipywidgets.VBox:
    """Return the sliders and a play button with the step that they show."""
    import ipywidgets

    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    step = ipywidgets.IntSlider(1, 1, 16, description="step", **long)
    play = ipywidgets.Play(value=1, min=1, max=16, interval=1500, description="play")
    knobs = {
        "tile_rows": ipywidgets.SelectionSlider(options=SIZES, value=4, description="tile rows", **long),
        "tile_columns": ipywidgets.SelectionSlider(options=SIZES, value=4, description="tile columns", **long),
        "causal": ipywidgets.Checkbox(value=True, description="causal", indent=False),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        sizes = {name: knob.value for name, knob in knobs.items()}
        play.max = step.max = len(tiled(*example(), **sizes))
        shown.value = region(picture(step.value, **sizes))

    ipywidgets.jslink((play, "value"), (step, "value"))
    for knob in (step, *knobs.values()):
        knob.observe(draw, names="value")
    draw()
    rows = [[step, play], [knobs["tile_rows"], knobs["tile_columns"], knobs["causal"]]]
    return with_keys(*map(ipywidgets.HBox, rows), shown)
