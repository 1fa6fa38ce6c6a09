"""Writes the report's first page: the node's card, then how the notebooks ran, one row each, and their pages."""

from html import escape
from pathlib import Path

from labkit.report.page import TITLE, write_page
from labkit.report.record import FAILED, INTERRUPTED, Outcome, Record, node_name


def write_first_page(record: Record, path: Path, card: str = "", style: str = "") -> None:
    """Write `path`, a page that needs nothing but itself and links to the notebooks' pages beside it.

    `card` is the node's card as HTML, in the style that `style` adds.
    """
    outcomes = record.ordered()
    machine = record.machine
    beside = {
        "claims.html": "What published reports claim, recomputed",
        "trends.html": "Key figures by date",
        "glossary.html": "Glossary",
    }
    links = [f'<a href="{name}">{text}</a>' for name, text in beside.items() if path.with_name(name).exists()]
    result = escape(summary(outcomes)) if outcomes else "measured by make card, without the notebooks"
    body = f"""<h1>{TITLE}</h1>
<p class="lead">{escape(node_name(machine.label, machine.host))}<br>{result}</p>
<p>{" · ".join(links)}</p>
{card}
{_notebooks(outcomes, machine.label, machine.host)}
{_facts("This machine", machine.facts)}
{_facts("Versions", machine.versions)}"""
    write_page(body, path, style)


def _notebooks(outcomes: list[Outcome], label: str, host: str) -> str:
    if not outcomes:
        return ""
    return f"""<h2>The notebooks</h2>
<table><thead><tr><th>Notebook</th><th class="time">Time</th><th class="result">Result</th></tr></thead>
<tbody>
{"".join(_row(outcome, label, host) for outcome in outcomes)}</tbody></table>"""


def summary(outcomes: list[Outcome]) -> str:
    """Return one line on all outcomes: how many there are, how many failed or were interrupted, and their time."""
    count, statuses = len(outcomes), [outcome.status for outcome in outcomes]
    ended = [f"{statuses.count(status)} of them {status}" for status in (FAILED, INTERRUPTED) if status in statuses]
    verdict = ", ".join(ended) or "all ok"
    noun = "notebook" if count == 1 else "notebooks"
    return f"{count} {noun}, {verdict}, {duration(sum(outcome.seconds for outcome in outcomes))}"


def duration(seconds: float) -> str:
    """Return a time in words: 4.1 s, 41 s, 3 min 05 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _row(outcome: Outcome, label: str, host: str) -> str:
    anchor = "#papermill-error-cell" if outcome.status == FAILED else ""
    why = f'<div class="why">{escape(outcome.why)}</div>' if outcome.why else ""
    return f"""<tr><td><a href="{escape(outcome.name)}.html{anchor}">{escape(outcome.title)}</a>
<span class="name">{escape(" · ".join(_circumstances(outcome, label, host)))}</span>{why}</td>
<td class="time">{duration(outcome.seconds)}</td>
<td class="result {escape(outcome.status)}">{escape(outcome.status)}</td></tr>
"""


def _circumstances(outcome: Outcome, label: str, host: str) -> list[str]:
    """Name the notebook, what it was set to and when it ran; and the node, where it is not the report's."""
    here = (outcome.node, outcome.host) == (label, host)
    elsewhere = [] if here else [node_name(outcome.node, outcome.host)]
    settings = [f"{name} = {value}" for name, value in outcome.parameters.items()]
    return [outcome.name, *settings, outcome.started.replace("T", " "), *elsewhere]


def _facts(heading: str, facts: dict) -> str:
    rows = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    return f"<h2>{heading}</h2><dl>{rows}</dl>" if rows else ""
