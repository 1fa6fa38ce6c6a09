"""Keeps what a report knows about its runs: the node and one outcome a notebook, as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

OK, FAILED, INTERRUPTED = "ok", "failed", "interrupted"


@dataclass
class Outcome:
    """How one notebook went: its title, when, where and for how long it ran, and why it failed."""

    name: str
    title: str
    started: str  # ISO date and time, local
    seconds: float = 0.0
    status: str = OK
    why: str = ""
    node: str = ""
    parameters: dict = field(default_factory=dict)


@dataclass
class Machine:
    """The node that ran the notebooks, in words that a page can show."""

    label: str = "this machine"
    facts: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


@dataclass
class Record:
    """A report: a machine, and outcomes by notebook name; a notebook that is run again replaces its own."""

    machine: Machine = field(default_factory=Machine)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def ordered(self) -> list[Outcome]:
        """Return the outcomes in the notebooks' order."""
        return [self.outcomes[name] for name in sorted(self.outcomes)]

    def save(self, path: Path) -> None:
        """Writes the record, in one step: a reader never sees half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(asdict(self), indent=1, default=str), encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Reads a record; a missing or unreadable file gives an empty one, as before the first run."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            outcomes = {name: Outcome(**fields) for name, fields in stored["outcomes"].items()}
            return cls(Machine(**stored["machine"]), outcomes)
        except (OSError, ValueError, TypeError, KeyError):
            return cls()
