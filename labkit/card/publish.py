"""Writes the card of a report in all its forms; needs no package of the notebooks."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from labkit.card.card_html import STYLE, card_html
from labkit.card.cards import Card, host_name, make_card, node_facts
from labkit.card.criteria import Criteria, CriteriaError
from labkit.card.formats import to_text, write_card
from labkit.card.readings import Reading, known
from labkit.card.soak import soak_html, soak_of
from labkit.card.trends import STYLE as TRENDS_STYLE
from labkit.card.trends import TITLE as TRENDS_TITLE
from labkit.card.trends import trends_html
from labkit.node import here, why_no_gpu_is_visible
from labkit.node.faults import Finding, findings
from labkit.report.page import TITLE, facts, write_page
from labkit.report.record import Machine, Outcome, Record, node_name, summary
from labkit.repository import source_digest
from labkit.stored import restored


def publish_card(record: Record, report: Path) -> Card:
    """Write the card of what the report's runs showed as JSON, CSV and JUnit's XML."""
    card = card_of(record)
    write_card(card, report)
    return card


def write_card_pages(card: Card, record: Record, report: Path) -> None:
    """Write the card as the first page of a report without notebooks, and the trends beside it."""
    machine = record.machine
    if trends := trends_html(report):
        back = f'<p class="lead"><a href="index.html">← The report</a></p>\n<h1>{TRENDS_TITLE}</h1>'
        write_page(f"{back}\n{trends}", report / "trends.html", TRENDS_STYLE, TRENDS_TITLE)
    link = f'<p><a href="trends.html">{TRENDS_TITLE}</a></p>' if trends else ""
    run = soak_of(record)
    soak = soak_html(run) if run else ""
    body = f"""<h1>{TITLE}</h1>
<p class="lead">{escape(node_name(machine.label, machine.host))}<br>measured by make card, without the notebooks</p>
{link}
<h2>The node's card</h2>
{card_html(card)}{soak}
{facts("This machine", machine.facts)}
{facts("Versions", machine.versions)}"""
    write_page(body, report / "index.html", STYLE)


def facts_here() -> dict[str, Any]:
    """Return what a record keeps of this node: its facts, its code, and what driver and kernel know of it now."""
    found = [asdict(each) for each in findings(here())]
    return node_facts(here()) | {"code": source_digest(), "findings": found}


def card_of(record: Record) -> Card:
    """Return the card of this node with the key figures that the report's runs showed."""
    parts = [*record.ordered(), record.card_runs]
    readings, problems = [], [problem for part in parts for problem in part.problems]
    for stored in itertools.chain.from_iterable(part.readings for part in parts):
        try:
            readings.append(restored(Reading, known(stored)))
        except (ValueError, AttributeError) as error:
            problems.append(f"a key figure's reading is damaged: {error}")
    date = record.last_start() or datetime.now().isoformat(timespec="seconds")
    others = "" if record.outcomes else "the notebooks measure it (make run)"
    facts = dict(record.node) or node_facts(here())  # a report may be rebuilt on another node
    found = [restored(Finding, each) for each in facts.pop("findings", ())]
    if not facts["gpus"]:
        problems.append(f"{why_no_gpu_is_visible()}: key figures that need one are left out")
    try:
        criteria = Criteria.read()
    except CriteriaError as error:  # it was right when the run began
        criteria = problems.append(f"{error}; the card is judged without it")
    about = {"why_not": record.card_runs.why_not, "otherwise": others, "problems": problems}
    return make_card(readings, facts, date, criteria=criteria, findings=found, **about)


def machine() -> Machine:
    """Return this node in words that a page can show."""
    node = here()
    facts = dict(node.table()["value"])
    facts.pop("software", None)  # all versions follow
    facts = {name: value for name, value in facts.items() if value != "–"}
    return Machine(node.label, facts, dict(node.versions), host=host_name())


def print_result(outcomes: list[Outcome], card: Card | None, report: Path) -> None:
    """Print how the notebooks went, the card, and where the report is."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    print()
    for outcome in outcomes:
        why = outcome.why.splitlines()[0] if outcome.why else ""
        print(f"{outcome.name:<{width}}  {outcome.seconds:>7.1f} s  {outcome.status:<11}  {why}".rstrip())
    if outcomes:
        print(f"\n{summary(outcomes)}")
    if card is not None:
        print(f"\n{to_text(card)}")
    print(f"report: {report / 'index.html'}")


def announce(kept: Path | None) -> None:
    """Say where the report that stood here is kept now."""
    if kept is not None:
        print(f"the earlier report is kept in {kept}")
