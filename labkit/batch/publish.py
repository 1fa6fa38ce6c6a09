"""Writes the pages of a report: a notebook's page, the glossary, the claims, and the first page."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from nbconvert.filters import markdown2html

from labkit.batch.pages import write_glossary, write_notebook_page
from labkit.card.publish import print_result, publish_card
from labkit.claims import claims_of, labs_with_claims
from labkit.report.first_page import write_first_page
from labkit.report.kept_reports import RECORD, executed_file, page_file
from labkit.report.page import write_page
from labkit.report.record import FAILED, OK, Outcome, Record
from labkit.story.claims import claims_text, tally

INTRODUCTION = (
    "Each row is a claim of a published report: the figure that it prints, and the figure that this workbook "
    "recomputes from a formula, from other published figures, or from a recorded run. Reasons follow for claims that "
    "do not hold or cannot be decided."
)


def publish(outcome: Outcome, folder: Path, record: Record, report: Path, names: set[str]) -> None:
    """Write the outcome's page and the record; a page that needs a network fails its notebook.

    `names` are the notebooks that have a page in this report, or will have one.
    """
    executed = executed_file(report, outcome.name)
    record.outcomes[outcome.name] = outcome
    try:
        write_glossary(folder, report)
        if executed.exists():
            loads = write_notebook_page(executed, page_file(report, outcome.name), outcome, folder, names)
            if loads and outcome.status == OK:
                outcome.status, outcome.why = FAILED, f"its page needs files from elsewhere: {', '.join(loads)}"
    finally:  # where there is no room for the page, there may be some for what its notebook came to
        record.save(report / RECORD)
    write_first_page(record, report / "index.html")


def rebuild(record: Record, notebooks: list[Path], report: Path) -> int:
    """Write the pages anew from the executed notebooks; give 1 where nothing ran yet."""
    paths = {path.stem: path for path in notebooks}
    again = [outcome for outcome in record.ordered() if outcome.name in paths]
    if not again and not record.card_runs.started:
        print(f"nothing ran yet: {report} holds no executed notebook; `make run` makes them", file=sys.stderr)
        return 1
    write_claims(report / "claims.html")
    for outcome in again:
        publish(outcome, paths[outcome.name].parent, record, report, {*record.outcomes})
    print_result(again, publish_card(record, report), report)
    return 0


def write_claims(path: Path) -> None:
    """Write `path`, a page with the claims of all labs; a lab whose claims cannot be recomputed is named with why.

    A damaged recording in one lab thus costs neither the other labs' claims nor the run of the notebooks.
    """
    sections, tables = [], []
    for lab in labs_with_claims():
        try:
            tables.append(claims_of(lab))
            sections.append(f"<h2>{escape(lab)}</h2>{markdown2html(str(claims_text(tables[-1]).data))}")
        except Exception as error:
            why = f"not recomputed: {type(error).__name__}: {error}"
            sections.append(f'<h2>{escape(lab)}</h2><div class="why">{escape(why)}</div>')
    verdicts = [holds for table in tables for holds in table["holds"]]
    body = f"""<p class="lead"><a href="index.html">← All notebooks</a></p>
<h1>What published reports claim</h1>
<p class="lead">{escape(INTRODUCTION)}<br>{escape(tally(verdicts))}.</p>
{"".join(sections)}"""
    write_page(body, path)
