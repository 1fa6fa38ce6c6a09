"""The card for other programs and for a terminal: card.csv, JUnit XML, and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from labkit.card.cards import FILE, Card, Row, headline, reference_value
from labkit.card.verdicts import NOT_COMPARABLE, NOT_MEASURED, WRONG
from labkit.engine.files import replace_file
from labkit.node.faults import summary
from labkit.story.units import number

CSV_FILE, JUNIT_FILE = "card.csv", "card.xml"
COLUMNS = (
    *("lab", "figure", "setting", "unit", "better", "value", "low", "high", "repeats", "limit"),
    *("reference", "worse_by_percent", "kind", "verdict", "which", "uuids", "run", "date", "seconds"),
)


def to_csv(card: Card) -> str:
    """Return one line per key figure; `reference` is the median of the recorded run that the verdict is based on."""
    return csv_text(csv_rows(card), COLUMNS)


def csv_text(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV; what a row lacks stays empty."""
    import pandas as pd  # takes half a second, which the lines of a terminal do not need

    return pd.DataFrame(rows, columns=columns, dtype=object).to_csv(index=False)


def csv_rows(card: Card) -> Iterator[dict[str, Any]]:
    """Return what each line of the CSV holds, by column."""
    return (
        vars(row)
        | {"reference": reference_value(row), "worse_by_percent": row.percent}
        | ({"which": row.which.name, "uuids": " ".join(row.which.uuids)} if row.which else {})
        for row in card.rows
    )


def to_junit(card: Card) -> str:
    """Return the card as JUnit XML: faults and figures to look at are failures; those not judged are skipped."""
    return xml_text(junit_suite(card))


def xml_text(root: ElementTree.Element) -> str:
    """Return a whole XML file."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def junit_suite(card: Card) -> ElementTree.Element:
    """Return the card as one suite of JUnit's tests."""
    counts = card.counts()
    failures, skipped = (sum(counts[kind] for kind in kinds) for kinds in (WRONG, (NOT_COMPARABLE, NOT_MEASURED)))
    counted = {"tests": len(card.rows) + len(card.faults), "failures": failures + len(card.faults)}
    totals = counted | {"skipped": skipped, "errors": 0}
    attributes = {"name": f"card of {card.node['label']}", "timestamp": card.date, "hostname": card.node["host"]}
    attributes["time"] = f"{sum(row.seconds for row in card.rows):.3f}"
    suite = ElementTree.Element("testsuite", attributes | {name: str(count) for name, count in totals.items()})
    for row in card.rows:
        about = {"classname": row.lab, "name": row.figure, "time": f"{row.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", about)
        if row.kind in WRONG:
            failure = ElementTree.SubElement(case, "failure", {"message": row.verdict, "type": row.kind})
            failure.text = "; ".join(filter(None, (measured_text(row), which_text(row), *row.notes)))
        elif row.kind in (NOT_COMPARABLE, NOT_MEASURED):
            ElementTree.SubElement(case, "skipped", {"message": row.verdict})
    for fault in card.faults:
        about = {"classname": "driver", "name": f"{fault.where}: {fault.what}", "time": "0.000"}
        case = ElementTree.SubElement(suite, "testcase", about)
        ElementTree.SubElement(case, "failure", {"message": fault.detail, "type": fault.kind})
    return suite


def measured_text(row: Row) -> str:
    """Return what was measured in words: "360 GB/s (reference 388 GB/s)"; "" where nothing was."""
    if not row.measured:
        return ""
    reference = reference_value(row)
    beside = f" (reference {number(reference)} {row.unit})" if reference is not None else ""
    return f"{number(row.value)} {row.unit}{beside}"


def which_text(row: Row) -> str:
    """Return which GPU, or pair, the figure is of, with its UUID: "GPU 1 (GPU-5ac…)"; "" where there are no others."""
    if (part := row.which) is None:
        return ""
    return f"{part.name} ({', '.join(part.uuids)})" if part.uuids else part.name


def to_text(card: Card) -> str:
    """Return the card for a terminal: a line per measured figure, then faults, problems and the headline."""
    measured = [row for row in card.rows if row.kind != NOT_MEASURED]
    cells = [(row.lab, row.figure, measured_text(row), row.verdict) for row in measured]
    widths = [max((len(cell[column]) for cell in cells), default=0) for column in range(3)]
    lines = ["  ".join([*(f"{cell[i]:<{widths[i]}}" for i in range(3)), cell[3]]).rstrip() for cell in cells]
    if card.findings:
        lines += [f"driver: {each.where}: {each.what} {each.detail}" for each in card.faults]
        lines.append(f"driver and kernel: {summary(card.findings)}")
    return "\n".join([*lines, *card.problems, headline(card)])


def write_card(card: Card, folder: Path) -> None:
    """Write card.json, card.csv and card.xml, each in one step."""
    for name, text in ((FILE, card.to_json()), (CSV_FILE, to_csv(card)), (JUNIT_FILE, to_junit(card))):
        replace_file(folder / name, text)
