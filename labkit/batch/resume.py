"""Which notebooks are done with the same code and parameters, and how long the others will take by earlier runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from labkit.report.first_page import duration
from labkit.report.kept_reports import RECORD, all_reports
from labkit.report.record import OK, Machine, Outcome, Record
from labkit.repository import REPOSITORY

_CODE = (
    "labkit/**/*.py",
    "notebooks/lessons/**/*.py",
    "labkit/**/*.csv",
    "data/models/*.json",
    "data/published/**/*.csv",
)


def digest(notebook: Path, machine: Machine) -> str:
    """Return a digest of all that a notebook's results come from: its text, the package, the versions, the machine."""
    files = [notebook, *sorted(path for pattern in _CODE for path in REPOSITORY.glob(pattern))]
    total = hashlib.sha256(f"{machine.label} {sorted(machine.versions.items())}".encode())
    for file in files:
        total.update(file.name.encode())
        total.update(file.read_bytes())
    return total.hexdigest()[:16]


def is_done(outcome: Outcome | None, code: str, parameters: dict[str, Any]) -> bool:
    """Return whether a notebook ran to its end with this code and these parameters."""
    return outcome is not None and (outcome.status, outcome.code, outcome.parameters) == (OK, code, parameters)


class Clock:
    """How long notebooks took in earlier runs on this machine, and what that says of those still to run."""

    def __init__(self, report: Path, machine: Machine):
        self.took: dict[tuple[str, str], float] = {}
        for folder in all_reports(report):
            for outcome in Record.load(folder / RECORD).ordered():
                if outcome.status == OK and outcome.node in (machine.label, ""):
                    self.took[outcome.name, str(outcome.parameters)] = outcome.seconds

    def remaining(self, notebooks: Iterable[tuple[str, dict[str, Any]]]) -> str:
        """Return the time that these notebooks need together in words; "" where none of them was timed."""
        return left([self.took.get((name, str(parameters))) for name, parameters in notebooks])


def left(seconds: Sequence[float | None]) -> str:
    """Return the sum in words, and how many of the times are not known: "about 12 min 05 s left"."""
    timed = [time for time in seconds if time is not None]
    unknown = len(seconds) - len(timed)
    if not timed:
        return ""
    more = f" without {unknown} notebook{'s' * (unknown > 1)} never timed here" if unknown else ""
    return f"about {duration(sum(timed))} left{more}"
