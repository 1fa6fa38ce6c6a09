"""Makes a report's pages say what its record says: a page a notebook, glossary, claims, card, and the first page."""

from __future__ import annotations

import functools
import sys
from html import escape
from pathlib import Path

import nbformat
from tqdm import tqdm

from labkit.batch import sources
from labkit.batch.site import Site
from labkit.card.card_html import STYLE, card_html
from labkit.card.cards import Card, headline
from labkit.card.publish import print_result, publish_card
from labkit.card.trends import STYLE as TRENDS_STYLE
from labkit.card.trends import TITLE as TRENDS_TITLE
from labkit.card.trends import trends_html
from labkit.report.kept_reports import RECORD, executed_file
from labkit.report.page import TITLE, facts, one_line
from labkit.report.record import FAILED, OK, Outcome, Record, node_name, summary

GLOSSARY = "glossary.md"


class Pages:
    """The pages of a report on the notebooks of a folder."""

    def __init__(self, report: Path, folder: Path):
        self.report, self.folder, self._site = report, folder, Site(report)
        self.all_made = True  # so far

    def publish(self, record: Record, card: Card | None = None) -> None:
        """Write the record, and make the pages that are not up to date.

        A notebook whose page cannot be made has failed, and no other one has.
        """
        record.save(self.report / RECORD)
        try:
            before = [outcome.status for outcome in record.ordered()]
            self._make(record, card)
            if before != [outcome.status for outcome in record.ordered()]:
                self._make(record, card)  # the first page tells of them, too
        except OSError:
            raise
        except Exception as error:  # notebooks that are still to run are worth more than pages
            self.all_made = False
            tqdm.write(f"the report's pages could not be made: {type(error).__name__}: {error}", file=sys.stderr)
        record.save(self.report / RECORD)

    def _make(self, record: Record, card: Card | None) -> None:
        pages, entries = {}, []
        for outcome in record.ordered():
            page, entry, picture = self._notebook(outcome, record)
            pages[f"{outcome.name}.ipynb"] = page
            entries.append(entry)
            if picture:
                pages[sources.picture_file(outcome.name)] = picture
        pages |= self._beside(card)
        pages["index.md"] = self._first_page(record, entries, list(pages), card)
        for name, why in self._site.write(pages, every=card is not None).items():
            if name in record.outcomes:
                _fail(record.outcomes[name], why)

    def _notebook(self, outcome: Outcome, record: Record) -> tuple[str, str, bytes]:
        """Return a notebook's page, its entry on the first page, and the entry's picture, if any."""
        above, picture = sources.above_the_page(outcome), b""
        try:
            notebook = nbformat.read(executed_file(self.report, outcome.name), as_version=4)
            shown = sources.shown_first(notebook)
            picture = sources.thumbnail(shown.picture)
            page = sources.notebook_page(notebook, above, record.outcomes)
        except Exception as error:  # a file that was cut off, or never begun, and what else one can hold
            _fail(outcome, f"{type(error).__name__}: {error}")
            shown, page = sources.Shown(), sources.stub(outcome.title, above)
        where = (record.machine.label, record.machine.host)
        return page, sources.lesson_entry(outcome.name, outcome.title, shown, sources.state_of(outcome, where)), picture

    def _beside(self, card: Card | None) -> dict[str, str | bytes]:
        """Return the pages beside the notebooks'."""
        pages = {}
        if card is not None:
            pages["card.md"] = sources.raw_page("The node's card", card_html(card), STYLE)
            if trends := trends_html(self.report):
                pages["trends.md"] = sources.raw_page(TRENDS_TITLE, trends, TRENDS_STYLE)
        pages["claims.md"] = self._claims
        if (glossary := self.folder / GLOSSARY).is_file():
            pages[GLOSSARY] = glossary.read_text(encoding="utf-8")
        return pages

    @functools.cached_property
    def _claims(self) -> str:
        return sources.claims_page()

    def _first_page(self, record: Record, entries: list[str], pages: list[str], card: Card | None) -> str:
        machine, has_gpus = record.machine, bool(record.node.get("gpus"))
        lines = [one_line(node_name(machine.label, machine.host)), summary(record.ordered())]
        lines += map(sources.ended_early, (outcome for outcome in record.ordered() if outcome.status != OK))
        if card and has_gpus:
            lines.append(f'<a href="card.html">The node\'s card: {escape(headline(card))}</a>')
        beside = sources.BESIDE if has_gpus else sources.BESIDE | {"card": sources.NO_GPU}
        about = facts("This machine", machine.facts) + facts("Versions", machine.versions)
        return sources.first_page(TITLE, lines, entries, beside, about, pages)


def rebuild(record: Record, notebooks: list[Path], report: Path) -> int:
    """Write the pages anew from the executed notebooks; give 1 where nothing ran yet."""
    if not record.outcomes and not record.card_runs.started:
        print(f"nothing ran yet: {report} holds no executed notebook; `make run` makes them", file=sys.stderr)
        return 1
    card = publish_card(record, report)
    Pages(report, notebooks[0].parent).publish(record, card)
    print_result(record.ordered(), card, report)
    return 0


def _fail(outcome: Outcome, why: str) -> None:
    if outcome.status == OK:
        outcome.status, outcome.why = FAILED, f"its page could not be made: {why}"
