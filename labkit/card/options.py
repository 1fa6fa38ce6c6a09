"""Options that `make card` and `make run` share, and the exit status that --fail-on asks for."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from labkit.card.cards import Card, failing_rows
from labkit.card.criteria import Criteria, CriteriaError
from labkit.card.formats import measured_text
from labkit.card.verdicts import BELOW
from labkit.engine.run_folder import runs_folder

LEVEL = re.compile(r"impossible|below(=\d+(\.\d+)?)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `make card` and `make run` share."""
    parser.add_argument("--report", type=Path, default=runs_folder() / "report", help="the report's folder")
    parser.add_argument(
        "--wait", action="store_true", help="where another unattended run holds the node, wait for its end"
    )
    parser.add_argument(
        "--fail-on",
        type=level,
        metavar="LEVEL",
        help="end with status 3 where a key figure is impossible (LEVEL impossible), or also where one is below the "
        "reference, or the driver knows a fault (below; below=5: by more than 5 percent)",
    )


def check_criteria(parser: argparse.ArgumentParser) -> None:
    """End with a sentence where card.toml is wrong, before anything is measured."""
    try:
        Criteria.read()
    except CriteriaError as error:
        parser.error(str(error))


def level(text: str) -> str:
    """Return a level of --fail-on; argparse shows the sentence for any other text."""
    if not LEVEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is none of: impossible, below, below=5 (percent)")
    return text


def status_of(card: Card, wanted: str | None, node: str = "") -> int:
    """Return 3 where the card has a figure or, from "below" on, a fault that fails, and print them; else 0.

    node: its name, where the cards of several are judged.
    """
    fails = f"{node}: fails on {wanted}" if node else f"fails on {wanted}"
    rows = failing_rows(card, wanted) if wanted else []
    for row in rows:
        print(f"{fails}: {row.lab}, {row.figure}: {row.verdict}, {measured_text(row)}", file=sys.stderr)
    faults = card.faults if wanted and wanted.startswith(BELOW) else []
    for fault in faults:
        print(f"{fails}: {fault}", file=sys.stderr)
    return 3 if rows or faults else 0
