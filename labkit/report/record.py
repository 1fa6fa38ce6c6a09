"""Keeps what a report knows about its runs: the node, one outcome a notebook, what the card measured; as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.engine.files import replace_file

OK, FAILED, INTERRUPTED = "ok", "failed", "interrupted"


@dataclass
class Outcome:
    """How one notebook went: its title, when, where and for how long it ran, and why it failed.

    code: digest of the code that ran, "" in older records. readings: the key figures of its runs (records of
    labkit.card.readings.Reading). problems: sentences about runs that could not be read.
    """

    name: str
    title: str
    started: str  # ISO date and time, local
    seconds: float = 0.0
    status: str = OK
    why: str = ""
    node: str = ""
    host: str = ""  # the node's name, "" in older records
    parameters: dict = field(default_factory=dict)
    code: str = ""
    readings: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def where(self) -> str:
        """Return the node that it ran on, in words."""
        return node_name(self.node, self.host)


@dataclass
class CardRuns:
    """What `make card` launched itself: when, for how long, its readings, and by lab why something was not measured.

    soak: the folder's name of the run that loaded all GPUs for minutes, "" without one.
    """

    started: str = ""
    seconds: float = 0.0
    readings: list[dict[str, Any]] = field(default_factory=list)
    why_not: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    soak: str = ""


@dataclass
class Machine:
    """The node that ran the notebooks, in words that a page can show."""

    label: str = "this machine"
    host: str = field(default="", kw_only=True)  # its name, "" in older records
    facts: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


@dataclass
class Record:
    """A report: a machine, and outcomes by notebook name; a notebook that is run again replaces its own."""

    machine: Machine = field(default_factory=Machine)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    card_runs: CardRuns = field(default_factory=CardRuns)
    node: dict[str, Any] = field(default_factory=dict)  # what its card says of the node

    def ordered(self) -> list[Outcome]:
        """Return the outcomes in the notebooks' order."""
        return [self.outcomes[name] for name in sorted(self.outcomes)]

    def last_start(self) -> str:
        """Return when the last part of the report was started, as an ISO date and time; "" before the first."""
        return max([self.card_runs.started, *(outcome.started for outcome in self.outcomes.values())])

    def save(self, path: Path) -> None:
        """Write the record, in one step: a reader never sees half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(asdict(self), indent=1, default=str))

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read a record; a missing or unreadable file gives an empty one, as before the first run."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            outcomes = {name: Outcome(**fields) for name, fields in stored["outcomes"].items()}
            return cls(
                Machine(**stored["machine"]), outcomes, CardRuns(**stored.get("card_runs", {})), stored.get("node", {})
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls()


def node_name(label: str, host: str | None) -> str:
    """Return a node in words: its host, where that is known, and what it is."""
    return f"{host}: {label}" if host else label


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
