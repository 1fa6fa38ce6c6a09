"""The card as HTML: a bar per key figure from 0 to the physical limit, ticks for the reference, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from labkit.card.cards import Card, Row, disturbed_rows, headline, reference_value, wrong_rows
from labkit.card.formats import which_text
from labkit.card.verdicts import ALIKE, BELOW, IMPOSSIBLE, NOT_COMPARABLE, NOT_MEASURED, ODD, SOUND, THRESHOLD
from labkit.node.comparability import CONDITIONS
from labkit.node.faults import summary
from labkit.repository import lesson_names
from labkit.story.units import number, percent
from labkit.tables.measures import LOWER

LOOKS = {  # of each verdict: its sign and its class in the page's style
    SOUND: ("✓", "ok"),
    ALIKE: ("✓", "ok"),
    BELOW: ("▼", "failed"),
    ODD: ("▼", "failed"),
    IMPOSSIBLE: ("✗", "failed"),
    NOT_COMPARABLE: ("○", "interrupted"),
    NOT_MEASURED: ("–", "soft"),
}
CLASSES = {kind: css_class for kind, (_, css_class) in LOOKS.items()}
_HEADROOM = 1.08  # right of the longest mark where no limit is known
STYLE = """
.key-figures td, .key-figures th { padding: 7px 12px 7px 0; }
.key-figures { table-layout: fixed; width: 100%; }
.key-figures th:nth-child(1) { width: 33%; } .key-figures th:nth-child(2) { width: 24%; }
.key-figures td.value .small { overflow-wrap: anywhere; }
figure.soak { margin: 0; } figure.soak svg { width: 100%; height: auto; }
.lead strong { color: var(--text); }
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
}
"""
_KEY = """<ul class="key">
<li><span class="sample track limited"><span class="fill" style="width:70%"></span></span>measured here;
the bar's end is the physical limit</li>
<li><span class="sample track"><span class="fill" style="width:70%"></span></span>no limit known, or lower is
better</li>
<li><span class="sample track"><span class="fill failed" style="width:70%"></span></span>below the reference, the odd
one out, or impossible</li>
<li><span class="sample track"><span class="fill interrupted" style="width:70%"></span></span>not comparable</li>
<li><span class="sample"><span class="band" style="left:40%;width:24%"></span>
<span class="tick" style="left:52%"></span></span>recorded reference: median and middle half</li></ul>"""


def card_html(card: Card) -> str:
    """Return the card as part of a page: its line, what to look at, what is sound and, folded, what was not judged."""
    wrong, sound = wrong_rows(card), [row for row in card.rows if row.kind in (SOUND, ALIKE)]
    disturbed, model = disturbed_rows(card), card.node["model"] or "the same GPU model"
    problems = "".join(f'<p class="problem">{escape(problem)}</p>' for problem in card.problems)
    about = f"""{_KEY}<p class="small">{escape(THRESHOLD)} The reference: recorded runs on {escape(model)} with the same
setting.</p>"""
    return f"""<p class="lead"><strong>{escape(headline(card))}.</strong><br>
<span class="soft">{escape(_conditions(card))}</span></p>
{problems}{_table("Look at", wrong)}{_faults(card)}{_table("Measure again", disturbed)}{_table("Sound", sound)}
{about if wrong or disturbed or sound else ""}
{_not_judged(card)}{_other_findings(card)}"""


def _faults(card: Card) -> str:
    """Return the faults that driver and kernel know, as a table; nothing where there are none."""
    cells = ((escape(each.where), f"✗ {escape(each.what)} {escape(each.detail)}") for each in card.faults)
    rows = "".join(
        f'<tr><td class="what">{where}</td><td class="verdict failed">{what}</td></tr>' for where, what in cells
    )
    return f'<h3>What the driver knows</h3><table class="key-figures"><tbody>{rows}</tbody></table>' if rows else ""


def _other_findings(card: Card) -> str:
    """Return remarks of driver and kernel, and what may not be read, as a list that opens with a click."""
    others = [each for each in card.findings if each not in card.faults]
    items = "".join(f"<li>{escape(f'{each.where}: {each.what} {each.detail} ({each.kind})')}</li>" for each in others)
    title = f"What the driver knows: {escape(summary(card.findings))}"
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>" if others else ""


def _table(heading: str, rows: Sequence[Row]) -> str:
    """Return rows below a heading; nothing where there are none."""
    if not rows:
        return ""
    heads = "".join(f"<th>{head}</th>" for head in ("Key figure", "From 0 to the limit", "Measured", "Verdict"))
    return f"""<h3>{heading}</h3><table class="key-figures"><thead><tr>{heads}</tr></thead>
<tbody>{"".join(map(_row, rows))}</tbody></table>"""


def _not_judged(card: Card) -> str:
    """Return what could not be judged, and why, as a list that opens with a click."""
    disturbed = disturbed_rows(card)
    rows = [row for row in card.rows if row.kind in (NOT_COMPARABLE, NOT_MEASURED) and row not in disturbed]
    if not rows:
        return ""
    items = "".join(f"<li>{escape(_unjudged_text(row))}</li>" for row in rows)
    return f"<details><summary>{len(rows)} figures that were not judged, and why</summary><ul>{items}</ul></details>"


def _unjudged_text(row: Row) -> str:
    value = f"{number(row.value)} {row.unit}, " if row.measured else ""
    return f"{row.figure}{f' ({row.setting})' if row.setting else ''}: {value}{row.verdict}"


def _row(row: Row) -> str:
    better = " · lower is better" if row.better == LOWER else ""
    lesson = f"lesson {lesson_names().index(row.lab):02}" if row.lab in lesson_names() else row.lab
    setting = f"{escape(row.setting)}{better} · " if row.setting else ""
    took = f" · {row.seconds:.1f} s" if row.seconds else ""
    about = f'<span class="small">{setting}{escape(lesson)}{took}</span>'
    notes = "".join(f'<span class="small">{escape(note)}</span>' for note in row.notes)
    return f"""<tr><td class="what">{escape(row.figure)}{about}</td><td class="scale">{_bar(row)}</td>
<td class="value">{_value(row)}</td>
<td class="verdict {CLASSES[row.kind]}">{LOOKS[row.kind][0]} {escape(row.verdict)}{notes}</td></tr>
"""


def _value(row: Row) -> str:
    if not row.measured:
        return ""
    which = row.which.name if row.which and row.kind in (SOUND, ALIKE) else which_text(row)
    beside = [escape(which)] if which else []
    if (reference := reference_value(row)) is not None:
        beside.append(f"reference {number(reference)}")
    if row.has_limit:
        share = row.limit / row.value if row.better == LOWER else row.value / row.limit
        beside.append(f"{percent(share)} of the limit {number(row.limit)}")
    return f"{number(row.value)} {escape(row.unit)}{''.join(f'<span class=small>{each}</span>' for each in beside)}"


def _bar(row: Row) -> str:
    """Return the bar: full width is the limit where one is known, else a little more than the longest mark."""
    if not row.measured:
        return ""
    marks = [row.value, *(reference["high"] for reference in row.references)]
    upper = row.limit if row.has_limit and row.better != LOWER else None
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
    values = card.conditions
    forms = {"driver": "driver {}", "torch": "torch {}"}
    forms |= {name: condition.in_line for name, condition in CONDITIONS.items() if condition.in_line}
    if reasons := values.get("throttle_reasons"):
        forms["throttled_percent"] += f" ({reasons})"
    parts = [form.format(values[name]) for name, form in forms.items() if values.get(name) not in (None, "")]
    return f"Made {card.date.replace('T', ' ')}" + (f"; {', '.join(parts)}" if parts else "")
