"""Which notebooks are done with the same code and parameters, and how long the others will take by earlier runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from labkit.report.kept_reports import RECORD, all_reports
from labkit.report.record import OK, Machine, Outcome, Record, duration
from labkit.repository import data_digest, source_digest


def shared_digest(machine: Machine) -> str:
    """Return a digest of what every notebook's results come from: the code, the data, the versions, the machine."""
    about = f"{source_digest()} {data_digest()} {machine.label} {sorted(machine.versions.items())}"
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def notebook_digest(notebook: Path, shared: str) -> str:
    """Return a digest of all that a notebook's results come from: its name and text, and what all of them share."""
    about = f"{shared} {notebook.name}\n".encode()
    return hashlib.sha256(about + notebook.read_bytes()).hexdigest()[:16]


def is_done(outcome: Outcome | None, code: str, parameters: dict[str, Any]) -> bool:
    """Return whether a notebook ran to its end with this code and these parameters."""
    return outcome is not None and (outcome.status, outcome.code, outcome.parameters) == (OK, code, parameters)


class EarlierDurations:
    """How long notebooks took in earlier runs on this machine, and what that says of those still to run."""

    def __init__(self, report: Path, machine: Machine):
        self.seconds_of: dict[tuple[str, str], float] = {}
        for folder in all_reports(report):
            for outcome in Record.load(folder / RECORD).ordered():
                if outcome.status == OK and outcome.node in (machine.label, ""):
                    self.seconds_of[outcome.name, str(outcome.parameters)] = outcome.seconds

    def time_left(self, notebooks: Iterable[tuple[str, dict[str, Any]]]) -> str:
        """Return the time that these notebooks need together in words; "" where none of them was timed."""
        return time_left_text([self.seconds_of.get((name, str(parameters))) for name, parameters in notebooks])


def time_left_text(seconds: Sequence[float | None]) -> str:
    """Return the sum in words, and how many of the times are not known: "about 12 min 05 s left"."""
    timed = [time for time in seconds if time is not None]
    unknown = len(seconds) - len(timed)
    if not timed:
        return ""
    more = f" without {unknown} notebook{'s' * (unknown > 1)} never timed here" if unknown else ""
    return f"about {duration(sum(timed))} left{more}"
