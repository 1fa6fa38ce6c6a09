"""The card as HTML: a bar per key figure from 0 to the physical limit, ticks for the reference, and the verdict."""

from __future__ import annotations

from html import escape
from itertools import groupby

from labkit.card.cards import Card, Row, headline
from labkit.card.verdicts import BELOW, IMPOSSIBLE, NOT_COMPARABLE, NOT_MEASURED, SOUND, THRESHOLD
from labkit.story.units import number, percent
from labkit.tables.measures import LOWER

GLYPHS = {SOUND: "✓", BELOW: "▼", IMPOSSIBLE: "✗", NOT_COMPARABLE: "○", NOT_MEASURED: "–"}
CLASSES = {SOUND: "ok", BELOW: "failed", IMPOSSIBLE: "failed", NOT_COMPARABLE: "interrupted", NOT_MEASURED: "soft"}
_HEADROOM = 1.08  # right of the longest mark where no limit is known
STYLE = """
.key-figures td, .key-figures th { padding: 7px 12px 7px 0; }
.key-figures td.what { width: 34%; } .key-figures td.scale { width: 32%; }
.key-figures td.value { white-space: nowrap; }
.key-figures tr.lab td { padding-top: 20px; font-weight: 600; border-bottom: 2px solid var(--line); }
.small { display: block; color: var(--soft); font-size: 12.5px; }
.track { position: relative; height: 16px; margin: 3px 6px 3px 0; background: var(--tint); border-radius: 2px; }
.track.limited { border-right: 2px solid var(--text); }
.fill { position: absolute; left: 0; top: 0; bottom: 0; background: var(--bar); border-radius: 2px 0 0 2px; }
.fill.failed { background: var(--bad); } .fill.interrupted { background: var(--held); }
.band { position: absolute; top: -3px; bottom: -3px; background: var(--text); opacity: 0.22; min-width: 1px; }
.tick { position: absolute; top: -4px; bottom: -4px; width: 2px; margin-left: -1px; background: var(--text); }
.edge { position: absolute; top: -4px; bottom: -4px; border-left: 2px dashed var(--text); }
.verdict { overflow-wrap: anywhere; } .verdict .small { font-weight: 400; }
ul.key { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 24px; padding: 0; color: var(--soft);
  font-size: 13px; }
ul.key .sample { position: relative; display: inline-block; width: 34px; height: 12px; margin: 0 8px -1px 0; }
details { margin: 16px 0; color: var(--soft); } details li { font-size: 13px; }
@media (max-width: 900px) {
  .key-figures thead { display: none; } .key-figures tr { display: grid; grid-template-columns: 1fr auto; gap: 2px 16px;
    padding: 8px 0; border-bottom: 1px solid var(--line); }
  .key-figures td { border: 0; padding: 0; width: auto !important; }
  .key-figures td.what { grid-area: 1 / 1; } .key-figures td.value { grid-area: 1 / 2; text-align: right; }
  .key-figures td.scale { grid-area: 2 / 1 / 3 / 3; padding: 5px 0; }
  .key-figures td.verdict { grid-area: 3 / 1 / 4 / 3; }
  .key-figures tr.lab { display: block; } .key-figures tr.lab td { display: block; padding-top: 8px; border: 0; }
}
"""
_KEY = """<ul class="key">
<li><span class="sample track limited"><span class="fill" style="width:70%"></span></span>measured here;
the bar's end is the physical limit</li>
<li><span class="sample track"><span class="fill" style="width:70%"></span></span>no limit known, or lower is
better</li>
<li><span class="sample track"><span class="fill failed" style="width:70%"></span></span>below the reference, or
impossible</li>
<li><span class="sample track"><span class="fill interrupted" style="width:70%"></span></span>not comparable</li>
<li><span class="sample"><span class="band" style="left:40%;width:24%"></span>
<span class="tick" style="left:52%"></span></span>recorded reference: median and middle half</li></ul>"""


def card_html(card: Card) -> str:
    """Return the card as part of a page, with the rows in the labs' order."""
    measured = [row for row in card.rows if row.kind != NOT_MEASURED]
    rows = "".join(
        f'<tr class="lab"><td colspan="4">{escape(lab)}</td></tr>{"".join(map(_row, group))}'
        for lab, group in groupby(measured, key=lambda row: row.lab)
    )
    model = card.node["model"] or "the same GPU model"
    heads = "".join(f"<th>{head}</th>" for head in ("Key figure", "From 0 to the limit", "Measured", "Verdict"))
    problems = "".join(f'<p class="problem">{escape(problem)}</p>' for problem in card.problems)
    table = f"""{_KEY}<table class="key-figures"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>
<p class="small">{escape(THRESHOLD)} The reference: recorded runs on {escape(model)} with the same setting.</p>"""
    return f"""<p class="lead">{escape(headline(card))}.<br><span class="soft">{escape(_conditions(card))}</span></p>
{problems}{table if measured else ""}{_not_measured(card)}"""


def _not_measured(card: Card) -> str:
    """Return the figures that were not measured as a list that opens with a click."""
    rows = [row for row in card.rows if row.kind == NOT_MEASURED]
    if not rows:
        return ""
    items = "".join(f"<li>{escape(f'{row.lab}: {row.figure}: {row.verdict}')}</li>" for row in rows)
    return f"<details><summary>{len(rows)} key figures not measured</summary><ul>{items}</ul></details>"


def _row(row: Row) -> str:
    better = " · lower is better" if row.better == LOWER else ""
    about = f'<span class="small">{escape(row.setting)}{better}</span>' if row.setting else ""
    notes = "".join(f'<span class="small">{escape(note)}</span>' for note in row.notes)
    return f"""<tr><td class="what">{escape(row.figure)}{about}</td><td class="scale">{_bar(row)}</td>
<td class="value">{_value(row)}</td>
<td class="verdict {CLASSES[row.kind]}">{GLYPHS[row.kind]} {escape(row.verdict)}{notes}</td></tr>
"""


def _value(row: Row) -> str:
    if row.value is None:
        return ""
    text = f"{number(row.value)} {escape(row.unit)}"
    if row.limit is None:
        return text
    share = row.limit / row.value if row.better == LOWER else row.value / row.limit
    return f'{text}<span class="small">{percent(share)} of {number(row.limit)}</span>'


def _bar(row: Row) -> str:
    """Return the bar: full width is the limit where one is known, else a little more than the longest mark."""
    if row.value is None:
        return ""
    marks = [row.value, *(reference["high"] for reference in row.references)]
    upper = row.limit if row.limit is not None and row.better != LOWER else None
    full = max(marks) * _HEADROOM if upper is None or max(marks) > upper else upper

    def at(value: float) -> str:
        return f"{100 * min(1.0, max(0.0, value / full)):.2f}%"

    parts = [f'<span class="fill {CLASSES[row.kind]}" style="width:{at(row.value)}"></span>']
    for reference in row.references:
        width = f"{100 * (reference['high'] - reference['low']) / full:.2f}%"
        parts.append(f'<span class="band" style="left:{at(reference["low"])};width:{width}"></span>')
        title = escape(f"{number(reference['value'])} {row.unit}, {reference['run']}")
        parts.append(f'<span class="tick" style="left:{at(reference["value"])}" title="{title}"></span>')
    if upper is not None and full != upper:
        parts.append(f'<span class="edge" style="left:{at(upper)}" title="physical limit"></span>')
    label = escape(f"{row.figure}: {number(row.value)} {row.unit}, {row.verdict}")
    limited = " limited" if upper is not None and full == upper else ""
    return f'<div class="track{limited}" role="img" aria-label="{label}">{"".join(parts)}</div>'


def _conditions(card: Card) -> str:
    """Return the conditions of the card's runs in a line."""
    forms = {
        "driver": "driver {}",
        "torch": "torch {}",
        "cores": "usable cores: {:g}",
        "enqueue_us": "{:.3g} µs to enqueue a kernel",
        "python_call_ns": "{:.3g} ns per Python call",
        "cpu_pressure_percent": "a process waited for a core in {:.0f} % of the time",
        "throttled_percent": "clocks throttled for at most {:.0f} % of a run",
        "other_processes": "{:g} other processes on the GPUs",
        "temperature_c": "at most {:.0f} °C",
    }
    values = card.conditions
    parts = [form.format(values[name]) for name, form in forms.items() if values.get(name) not in (None, "")]
    return f"Made {card.date.replace('T', ' ')}" + (f"; {', '.join(parts)}" if parts else "")
