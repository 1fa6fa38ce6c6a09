"""A slider over FlashAttention-2's steps: which tile is on, and what its rows keep before and after."""

from __future__ import annotations

from math import inf

import ipywidgets
from matplotlib.colors import to_hex

from labkit.charts import canvas
from labkit.labs.attention.charts.memory import BEFORE, KEPT, MASKED, SHADES
from labkit.labs.attention.theory import SKIPPED, Running, Step, example, tiled

SIZES = (2, 4, 8)
WIDTH, CELL, LANE = 920, 20, 38  # pixels of the drawing, of a score, of a row's lane
LEFT, TOP, RIGHT = 24, 34, 380  # pixels where the matrix begins, and where the rows' lanes do
COLUMN, BAR = 108, 96  # pixels of a column, of its longest bars together
FACTOR = 60  # pixels of the column that holds exp(m_old − m_new)


def picture(step: int, tile_rows: int, tile_columns: int, causal: bool) -> str:
    """Give HTML: a sentence with what the step does over an SVG, the matrix on the left, its rows on the right.

    Steps count from 1. A tile that is still to come is white, for its scores do not exist yet.
    """
    scores, values = example()
    steps = tiled(scores, values, tile_rows, tile_columns, causal)
    now, levels = steps[step - 1], [score for row in scores for score in row]
    cells = [_tile(other, place < step, other is now, levels) for place, other in enumerate(steps)]
    lanes = [_lane(now, place, _reach(steps)) for place in range(len(now.rows))]
    height = TOP + CELL * len(scores) + 4
    where = f"<b>Step {step} of {len(steps)}</b>, queries {_span(now.rows)}, keys {_span(now.columns)}, {now.kind}"
    return (
        f'<div style="min-height:3em">{where}: {_sentence(steps, step - 1)}</div>'
        f'<div style="color:{canvas.QUIET}">{_legend()}</div><svg viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'font-size="11" font-family="sans-serif" fill="{canvas.INK}">'
        f"{_heads(len(scores))}{''.join([*cells, _frame(now), *lanes])}</svg>"
    )


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
    return "−∞" if value == -inf else f"{value:.{places}f}".replace("-", "−")


def _legend() -> str:
    marks = {
        "done": ("■", to_hex(SHADES(0.6))),
        "this step": ("▣", canvas.INK),
        "to come": ("□", canvas.INK),
        "masked": ("■", MASKED),
        "skipped": ("╳", canvas.QUIET),
        "before": ("▬", BEFORE),
        "after": ("▬", KEPT),
    }
    return " &nbsp; ".join(f'<span style="color:{color}">{mark}</span> {name}' for name, (mark, color) in marks.items())


def _heads(length: int) -> str:
    heads, middle = [], 'text-anchor="middle" font-size="9"'
    for place in range(length):
        along = CELL * (place + 0.5)
        heads += [
            f'<text x="{LEFT + along}" y="{TOP - 4}" {middle}>{place}</text>',
            f'<text x="{LEFT - 10}" y="{TOP + along + 3}" {middle}>{place}</text>',
        ]
    heads += [f'<text x="{LEFT}" y="12">keys →</text><text x="{RIGHT}" y="12">query</text>']
    names = {"maximum m": 0, "sum l": 1, "output o[0]": 2, "output o[1]": 3}
    heads += [f'<text x="{_column(place)}" y="12">{name}</text>' for name, place in names.items()]
    return "".join([*heads, f'<text x="{_column(1) - FACTOR}" y="12">rescaled</text>'])


def _column(place: int) -> int:
    """Give where a column begins: m, then behind the factor l and the parts of o."""
    return RIGHT + 44 + COLUMN * place + (FACTOR if place else 0)


def _tile(step: Step, visited: bool, current: bool, levels: list[float]) -> str:
    if step.kind == SKIPPED:
        x, y, width, height = _box(step)
        cross = f"M{x} {y}l{width} {height}m0 {-height}l{-width} {height}"
        return (
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{MASKED}" stroke="white"/>'
            f'<path d="{cross}" stroke="{canvas.QUIET}" stroke-width="0.7"/>'
        )
    low, high = min(levels), max(levels)
    parts = []
    for row, line in zip(step.rows, step.scores, strict=True):
        for column, score in zip(step.columns, line, strict=True):
            x, y, level = LEFT + CELL * column, TOP + CELL * row, (score - low) / (high - low)
            fill = MASKED if score == -inf else to_hex(SHADES(level)) if visited else "white"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{fill}" '
                f'stroke="{canvas.HAIRLINE}" stroke-width="0.5"/>'
            )
            if current and score != -inf:
                ink = "white" if level > 0.6 else canvas.INK
                parts.append(
                    f'<text x="{x + CELL / 2}" y="{y + 13}" text-anchor="middle" font-size="8.5" '
                    f'fill="{ink}">{_number(score, 1)}</text>'
                )
    return "".join(parts)


def _box(step: Step) -> tuple[int, int, int, int]:
    """Give a tile's x, y, width and height in pixels."""
    place = LEFT + CELL * step.columns[0], TOP + CELL * step.rows[0]
    return *place, CELL * len(step.columns), CELL * len(step.rows)


def _frame(step: Step) -> str:
    x, y, width, height = _box(step)
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect {size} fill="none" stroke="{canvas.INK}" stroke-width="2.5"/>'


def _kept(row: Running) -> tuple[float, ...]:
    return (row.maximum, row.total, *row.output)


def _reach(steps: list[Step]) -> list[tuple[float, float]]:
    """Give the least and the most that m, l and each part of o ever are, 0 among them: their bars' common scale."""
    columns = zip(*(_kept(row) for step in steps for row in step.after), strict=True)
    return [(min(0.0, *column), max(0.0, *column)) for column in columns]


def _lane(step: Step, place: int, reach: list[tuple[float, float]]) -> str:
    y, factor = TOP + LANE * place, step.factors[place]
    parts = [f'<text x="{RIGHT}" y="{y + 16}">{step.rows[place]}</text>']
    pairs = zip(_kept(step.before[place]), _kept(step.after[place]), reach, strict=True)
    for column, (before, after, (low, high)) in enumerate(pairs):
        x, scale = _column(column), BAR / (high - low)
        parts.append(f'<text x="{x}" y="{y + 12}">{_number(before)} → {_number(after)}</text>')
        for lower, value, color in ((17, before, BEFORE), (23, after, KEPT)):
            start, end = sorted((0.0, max(value, low)))
            parts.append(
                f'<rect x="{x + (start - low) * scale:.1f}" y="{y + lower}" '
                f'width="{(end - start) * scale:.1f}" height="5" fill="{color}"/>'
            )
    weight = 'font-weight="bold"' if 0 < factor < 1 else f'fill="{canvas.QUIET}"'
    return "".join([*parts, f'<text x="{_column(1) - FACTOR}" y="{y + 12}" {weight}>× {_number(factor)}</text>'])


def explore() -> ipywidgets.VBox:
    """Give the sliders and a play button with the step that they show."""
    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    step = ipywidgets.IntSlider(1, 1, 16, description="step", **long)
    play = ipywidgets.Play(value=1, min=1, max=16, interval=1500)
    knobs = {
        "tile_rows": ipywidgets.SelectionSlider(options=SIZES, value=4, description="tile rows", **long),
        "tile_columns": ipywidgets.SelectionSlider(options=SIZES, value=4, description="tile columns", **long),
        "causal": ipywidgets.Checkbox(value=True, description="causal", indent=False),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        sizes = {name: knob.value for name, knob in knobs.items()}
        play.max = step.max = len(tiled(*example(), **sizes))
        shown.value = picture(step.value, **sizes)

    ipywidgets.jslink((play, "value"), (step, "value"))
    for knob in (step, *knobs.values()):
        knob.observe(draw, names="value")
    draw()
    rows = [[step, play], [knobs["tile_rows"], knobs["tile_columns"], knobs["causal"]]]
    return ipywidgets.VBox([*map(ipywidgets.HBox, rows), shown])
