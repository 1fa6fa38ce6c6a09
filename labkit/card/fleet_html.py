"""The fleet's page: a table of nodes and key figures, the odd ones marked, with a link to each node's own card."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from labkit.card.card_html import CLASSES, LOOKS
from labkit.card.cards import Card, Row, disturbed_rows, wrong_rows
from labkit.card.fleet import FLEET, NODES, FleetNode, fleet_headline
from labkit.card.verdicts import ALIKE, HOST_RATE, HOST_TIME, NOT_MEASURED, ODD_PERCENT, SOUND, WRONG
from labkit.report.page import TITLE
from labkit.story.units import number

STYLE = """
body { max-width: 1400px; } p { max-width: 1000px; } .lead strong { color: var(--text); overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.fleet { width: auto; min-width: 100%; }
.fleet td, .fleet th { padding: 8px 12px; min-width: 84px; text-align: right; white-space: nowrap; }
.fleet th { vertical-align: bottom; color: var(--text); white-space: normal; }
.fleet td:first-child, .fleet th:first-child { position: sticky; left: 0; z-index: 1; padding-left: 0;
  width: 170px; min-width: 150px; text-align: left; white-space: normal; background: var(--back); }
.fleet td.whole { text-align: left; }
.whole span { position: sticky; left: 190px; display: inline-block; max-width: min(700px, 100vw - 260px);
  white-space: normal; }
.small { display: block; color: var(--soft); font-size: 12.5px; font-weight: 400; white-space: normal; }
.fleet td.failed { min-width: 150px; }
.small.failed, .failed .small { color: var(--bad); } .small.ok { color: var(--ok); }
.small.interrupted { color: var(--held); }
"""
_RULE = f"""A figure is marked where a node's own card marks it, and where it is worse than on the other nodes: its
median by more than {ODD_PERCENT:g} % beside the median of the others (copies with the host: {100 * HOST_RATE:g} %;
times that the host decides: a factor of {1 + HOST_TIME:g}), and its better quartile than their worse one. Nodes are
compared where they have equally many GPUs of the same model, and measured with the same setting."""


def fleet_html(nodes: Sequence[FleetNode]) -> str:
    """Return the body of the fleet's page: its line, then the table; without GPUs, the nodes' names alone."""
    lead = (
        f'<h1>{TITLE}</h1>\n<p class="lead">{len(nodes)} nodes, measured by make card</p>\n<h2>The nodes\' cards</h2>'
    )
    line = f'{lead}\n<p class="lead"><strong>{escape(fleet_headline(nodes))}.</strong></p>'
    cards = [node.card for node in nodes if node.card and node.has_gpus]
    rows = [row for card in cards for row in card.rows if row.lab != FLEET]
    measured, marked_first = (
        {row.key for row in rows if row.measured},
        sorted(rows, key=lambda row: row.kind not in WRONG),
    )
    columns = dict.fromkeys((row.key, row.unit) for row in marked_first if row.key in measured)
    if not columns:
        return f"{line}\n<ul>{''.join(f'<li>{_link(node)}</li>' for node in nodes)}</ul>"
    heads = "".join(f'<th>{escape(key[1])}<span class="small">{escape(unit)}</span></th>' for key, unit in columns)
    lines = "".join(f"<tr>{_row(node, [key for key, _ in columns])}</tr>\n" for node in nodes)
    return f"""{line}
<div class="wide" tabindex="0" role="region" aria-label="nodes and key figures"><table class="fleet">
<thead><tr><th>Node</th>{heads}</tr></thead><tbody>
{lines}</tbody></table></div>
<p class="small">{escape(_RULE)}</p>"""


def _link(node: FleetNode) -> str:
    """Return the node's name, with a link to its card where it has one."""
    name = escape(node.name)
    return f'<a href="{NODES}/{quote(node.name, safe="")}/index.html">{name}</a>' if node.card else name


def _row(node: FleetNode, keys: Sequence[tuple[str, str]]) -> str:
    if node.card is None:
        text = f'<td class="whole failed" colspan="{len(keys)}"><span>– {escape(node.to_look_at[0])}</span></td>'
        return f"<td>{_link(node)}</td>{text}"
    shown = {row.key: row for row in node.card.rows}
    cells = "".join(_cell(shown.get(key)) for key in keys)
    return (
        f'<td>{_link(node)}<span class="small">{escape(node.card.node["label"])}</span>{_state(node.card)}</td>{cells}'
    )


def _state(card: Card) -> str:
    """Return the faults, a missing GPU, how many figures are marked, what was disturbed; a tick where all is well."""
    found = [*map(str, card.faults), *(f"{row.figure}: {row.verdict}" for row in card.rows if row.lab == FLEET)]
    if marked := sum(row.lab != FLEET for row in wrong_rows(card)):
        found.append("1 figure" if marked == 1 else f"{marked} figures")
    if found:
        return "".join(f'<span class="small failed">✗ {escape(text)}</span>' for text in found)
    if disturbed_rows(card):
        return '<span class="small interrupted">○ measure again: disturbed</span>'
    judged = any(row.kind in (SOUND, ALIKE) for row in card.rows)
    return f'<span class="small {"ok" if judged else ""}">{"✓" if judged else "– not judged"}</span>'


def _cell(row: Row | None) -> str:
    if row is None:
        return "<td></td>"
    value = number(row.value) if row.measured else ""
    if row.kind not in WRONG:
        return f'<td title="{escape(row.verdict)}">{value or "–"}</td>'
    sign = LOOKS[row.kind if row.measured else NOT_MEASURED][0]
    return f'<td class="{CLASSES[row.kind]}">{sign} {value}<span class="small">{escape(row.verdict)}</span></td>'
