"""Each key figure of a node by date: one small chart per figure, in the report's folder."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from labkit.batch.frame import write_page_of
from labkit.card.cards import Row, named
from labkit.card.page import CLASSES
from labkit.card.reports import History, history
from labkit.card.verdicts import KINDS, NOT_MEASURED
from labkit.story.units import number
from labkit.tables.measures import LOWER

FILE = "trends.html"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 130, 8, 8, 10, 24
_ROOM = 1.1
_LEAST = 2  # dates that make a trend
STYLE = """
.trends { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 28px 36px; }
.trends figure { margin: 0; } .trends figcaption { font-weight: 600; font-size: 14px; }
.trends figcaption span { display: block; color: var(--soft); font-weight: 400; font-size: 12.5px; }
.trends svg { width: 100%; height: auto; overflow: visible; font: 11px system-ui, sans-serif; fill: var(--soft); }
.soft { color: var(--soft); }
.trends .line { fill: none; stroke: var(--bar); stroke-width: 2; }
.trends .spread { stroke: var(--bar); stroke-width: 1.5; }
.trends .floor { stroke: var(--line); } .trends .limit { stroke: var(--text); stroke-width: 1.5; }
.trends .band { fill: var(--text); opacity: 0.12; } .trends circle { stroke: var(--back); stroke-width: 1.5; }
.trends circle.ok { fill: var(--ok); } .trends circle.failed { fill: var(--bad); }
.trends circle.interrupted { fill: var(--held); } .trends circle.soft { fill: var(--soft); }
p.problem { border-left: 3px solid var(--held); padding: 6px 12px; background: var(--tint); }
"""


def write_trends(report: Path) -> Path | None:
    """Write the trends of the newest card's node beside the report's first page; None before two cards."""
    past = history(report)
    if not past.cards:
        return None
    of_this_node = past.of_node(past.cards[-1][1].node.get("id", ""))
    if len(of_this_node.cards) < _LEAST:
        return None
    write_page_of(trends_page(of_this_node), report / FILE, STYLE)
    return report / FILE


def trends_page(past: History) -> str:
    """Return the body of the page: one chart per figure that the newest card shows."""
    newest = past.cards[-1][1]
    charts = "".join(chart(series(past, row)) for row in newest.rows if row.value is not None)
    colours = ", ".join(f'<span class="{CLASSES[kind]}">●</span> {kind}' for kind in KINDS if kind != NOT_MEASURED)
    problems = "".join(f'<p class="problem">{escape(problem)}</p>' for problem in past.problems)
    return f"""<p class="lead"><a href="index.html">← The report</a></p>
<h1>Key figures by date</h1>
<p class="lead">{escape(named(newest.node["label"], newest.node.get("host")))}, {len(past.cards)} cards.
Each scale begins at zero; a line on top is the physical limit, a grey band the middle half of the recorded
reference's repeats.
A dot's colour is its verdict: {colours}.</p>
{problems}<div class="trends">{charts}</div>"""


def series(past: History, newest: Row) -> list[Row]:
    """Return a figure's rows by date, each run once; rows of another setting than the newest one are left out."""
    rows = [row for _, card in past.cards for row in card.rows if row.key == newest.key and row.value is not None]
    by_run = {row.run: row for row in rows if row.setting == newest.setting}
    return sorted(by_run.values(), key=lambda row: row.date)


def chart(rows: Sequence[Row]) -> str:
    """Return one figure's chart as HTML; its points are equally far apart, in the order of their dates."""
    last = rows[-1]
    limit = last.limit if last.better != LOWER else None
    references = [value for reference in last.references for value in (reference["low"], reference["high"])]
    values = [float(value) for row in rows for value in (row.high, row.low) if value is not None]
    full = max([*values, *references, limit or 0.0])
    full *= 1 if full == limit else _ROOM
    inner, step = WIDTH - LEFT - RIGHT, (WIDTH - LEFT - RIGHT - 24) / max(1, len(rows) - 1)

    def x(number_of_row: int) -> float:
        return LEFT + 12 + number_of_row * step if len(rows) > 1 else LEFT + inner / 2

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / full)

    parts = [f'<line class="floor" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>']
    if limit is not None:
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"/>')
    for low, high in zip(references[::2], references[1::2], strict=True):
        place = f'x="{LEFT}" width="{inner}" y="{y(high):.1f}" height="{max(1.0, y(low) - y(high)):.1f}"'
        parts.append(f'<rect class="band" {place}/>')
    points = [(x(i), y(float(row.value or 0)), row) for i, row in enumerate(rows)]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down, _ in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    parts += [
        _point(across, down, row, y(float(row.low or 0)), y(float(row.high or 0))) for across, down, row in points
    ]
    parts += _dates(rows)
    label = f"{last.lab}, {last.figure}: {number(last.value or 0)} {last.unit}, {last.verdict}"
    better = ", lower is better" if last.better == LOWER else ""
    about = f"{last.lab} · {last.setting} · last {number(last.value or 0)} {last.unit}{better}"
    return f"""<figure><figcaption>{escape(last.figure)}<span>{escape(about)}</span></figcaption>
<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg></figure>"""


def _point(across: float, down: float, row: Row, low: float, high: float) -> str:
    title = f"{row.date.replace('T', ' ')}: {number(row.value or 0)} {row.unit}, {row.verdict}"
    spread = f'<line class="spread" x1="{across:.1f}" x2="{across:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    place = f'cx="{across:.1f}" cy="{down:.1f}" r="5"'
    return f'{spread}<circle class="{CLASSES[row.kind]}" {place}><title>{escape(title)}</title></circle>'


def _dates(rows: Sequence[Row]) -> list[str]:
    """Return the first and the last date below the chart, as far as there are two."""
    first, last = (row.date[:16].replace("T", " ") for row in (rows[0], rows[-1]))
    at = HEIGHT - 6
    if len(rows) == 1:
        return [f'<text x="{WIDTH / 2}" y="{at}" text-anchor="middle">{escape(last)}</text>']
    return [
        f'<text x="{LEFT}" y="{at}">{escape(first)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{at}" text-anchor="end">{escape(last)}</text>',
    ]
