"""Each key figure of a node by date: one small chart per figure, in the report's folder."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.card.card_html import CLASSES
from labkit.card.cards import Row
from labkit.card.history import History, history
from labkit.card.verdicts import KINDS, NOT_MEASURED
from labkit.charts import canvas
from labkit.report.page import STYLE_FILE
from labkit.report.record import node_name
from labkit.story.units import number
from labkit.tables.measures import LOWER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Key figures by date"
_HEADROOM = 1.1
_LEAST = 2  # dates that make a trend
STYLE = """
.trends { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 28px 36px; }
.trends figure { margin: 0; } .trends figcaption { font-weight: 600; font-size: 14px; }
.trends figcaption span { display: block; color: var(--soft); font-weight: 400; font-size: 12.5px; }
.trends svg { width: 100%; height: auto; }
"""
# The report's light colours; on the page, the name stands for each, which has another colour in the dark.
INKS = dict(re.findall(r"--(\w+): light-dark\((#\w+)", STYLE_FILE.read_text(encoding="utf-8")))
COLOURS = {color: name for name, color in INKS.items()}
COLOURS |= {canvas.INK: "text", canvas.QUIET: "soft", canvas.HAIRLINE: "line", "#B5B5B5": "line"}
DOTS = {"ok": "ok", "failed": "bad", "interrupted": "held", "soft": "soft"}  # by the class of a verdict


def trends_html(report: Path) -> str:
    """Return the trends of the newest card's node as part of a page; "" before two cards."""
    past = history(report)
    if not past.cards:
        return ""
    of_this_node = past.of_node(past.cards[-1][1].node.get("id", ""))
    return trends_of(of_this_node) if len(of_this_node.cards) >= _LEAST else ""


def trends_of(past: History) -> str:
    """Return one chart per figure that the newest card shows, as HTML."""
    newest = past.cards[-1][1]
    charts = "".join(chart(series(past, row)) for row in newest.rows if row.measured)
    colours = ", ".join(f'<span class="{CLASSES[kind]}">●</span> {kind}' for kind in KINDS if kind != NOT_MEASURED)
    problems = "".join(f'<p class="problem">{escape(problem)}</p>' for problem in past.problems)
    node = escape(node_name(newest.node["label"], newest.node.get("host")))
    return f"""<p class="lead">{node}, {len(past.cards)} cards.
Each scale begins at zero; a line on top is the physical limit, a grey band the middle half of the recorded
reference's repeats.
A dot's colour is its verdict: {colours}.</p>
{problems}<div class="trends">{charts}</div>"""


def series(past: History, newest: Row) -> list[Row]:
    """Return a figure's rows by date, each run once; rows of another setting than the newest one are left out."""
    rows = [row for _, card in past.cards for row in card.rows if row.key == newest.key and row.measured]
    by_run = {row.run: row for row in rows if row.setting == newest.setting}
    return sorted(by_run.values(), key=lambda row: row.date)


def chart(rows: Sequence[Row]) -> str:
    """Return one figure's chart as HTML: its drawing, whose dots tell their runs to a pointer."""
    last = rows[-1]
    label = f"{last.lab}, {last.figure}: {number(last.value)} {last.unit}, {last.verdict}"
    drawing = inline_svg(series_figure(rows), label)
    for place, row in enumerate(rows):
        title = f"{row.date.replace('T', ' ')}: {number(row.value)} {row.unit}, {row.verdict}"
        drawing = drawing.replace(f'<g id="dot{place}">', f"<g><title>{escape(title)}</title>")
    better = ", lower is better" if last.better == LOWER else ""
    about = f"{last.lab} · {last.setting} · last {number(last.value)} {last.unit}{better}"
    return f"""<figure><figcaption>{escape(last.figure)}<span>{escape(about)}</span></figcaption>
{drawing}</figure>"""


def inline_svg(figure: Figure, label: str) -> str:
    """Return a drawing as part of a page, in the page's colours, light and dark; `label` says what it shows."""
    import matplotlib

    text, no_metadata = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(text, format="svg", transparent=True, metadata=no_metadata)
    drawing = text.getvalue().partition("<svg ")[2]
    for color, name in COLOURS.items():
        drawing = drawing.replace(color, f"var(--{name})")
    return f'<svg role="img" aria-label="{escape(label)}" {drawing}'


def series_figure(rows: Sequence[Row]) -> Figure:
    """Draw one figure's values; they are equally far apart, in the order of their dates."""
    last, places = rows[-1], range(len(rows))
    limit = last.limit if last.has_limit and last.better != LOWER else None
    figure, ax = canvas.canvas(width=4.6, height=1.35)
    for reference in last.references:
        ax.axhspan(reference["low"], reference["high"], color=INKS["text"], alpha=0.12)
    if limit is not None:
        ax.axhline(limit, color=INKS["text"], lw=1.5)
    ax.plot(places, [row.value for row in rows], color=INKS["bar"], lw=2)
    ax.vlines(places, [row.low for row in rows], [row.high for row in rows], color=INKS["bar"])
    for place, row in enumerate(rows):
        ax.plot(place, row.value, "o", color=INKS[DOTS[CLASSES[row.kind]]], ms=7, clip_on=False, gid=f"dot{place}")
    top = ax.dataLim.y1
    ax.set(ylim=(0, top if top == limit else _HEADROOM * top), xlim=(-0.1, max(places) + 0.1))
    ax.set_yticks([0, last.value], ["0", number(last.value)], color=INKS["soft"], size=8)
    ends = dict.fromkeys((0, places[-1]))  # the first and the last date, as far as there are two
    ax.set_xticks([*ends], [rows[place].date[:16].replace("T", " ") for place in ends], color=INKS["soft"], size=8)
    for tick, side in zip(ax.get_xticklabels(), ("left", "right") if len(ends) > 1 else ("center",), strict=True):
        tick.set_horizontalalignment(side)
    ax.spines[:].set_visible(False)
    ax.axhline(0, color=INKS["line"], lw=1, zorder=0)
    ax.tick_params(length=0)
    return figure
