"""Writes the pages of a report: a notebook's page, the glossary, the claims, and the first page."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.batch.claims import write_claims
from labkit.batch.glossary import write_glossary
from labkit.batch.index import write_index
from labkit.batch.keep import RECORD, executed_file, page_file
from labkit.batch.pages import write_page
from labkit.batch.record import FAILED, OK, Outcome, Record
from labkit.card.publish import print_result, publish_card


def publish(outcome: Outcome, folder: Path, record: Record, report: Path, names: set[str]) -> None:
    """Write the outcome's page and the record; a page that needs a network fails its notebook.

    `names` are the notebooks that have a page in this report, or will have one.
    """
    executed = executed_file(report, outcome.name)
    record.outcomes[outcome.name] = outcome
    try:
        write_glossary(folder, report)
        if executed.exists():
            loads = write_page(executed, page_file(report, outcome.name), outcome, folder, names)
            if loads and outcome.status == OK:
                outcome.status, outcome.why = FAILED, f"its page needs files from elsewhere: {', '.join(loads)}"
    finally:  # where there is no room for the page, there may be some for what its notebook came to
        record.save(report / RECORD)
    write_index(record, report / "index.html")


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
