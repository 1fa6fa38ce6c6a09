"""A run's folder: the one owner of its file names, of what is written there, and of how it is read."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.engine.excerpt import excerpt

REPOSITORY = Path(__file__).resolve().parents[2]


def runs_folder() -> Path:
    """The folder that new runs go to: $LABKIT_RUNS, or runs/ at the top of the repository."""
    return Path(os.environ.get("LABKIT_RUNS") or REPOSITORY / "runs").absolute()  # the agent may stand elsewhere


class Folder:
    """Where the files of one run lie, and what they say; `closed` is how this process saw the run end, as `status`."""

    def __init__(self, folder: Path | str):
        self.folder, self.closed = Path(folder), {}

    # The file names: no other module spells them.
    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    @property
    def node_file(self) -> Path:
        return self.folder / "node.json"

    @property
    def status_file(self) -> Path:
        return self.folder / "status.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def launcher_log(self) -> Path:
        """What a bare torchrun said (`make bench`)."""
        return self.logs / "torchrun.txt"

    def outcome_file(self, launch: int) -> Path:
        """How the agent saw the launch end."""
        return self.logs / f"outcome{launch}.json"

    def rows_file(self, rank: int) -> Path:
        return self.folder / f"rows-rank{rank}.jsonl"

    def log_file(self, rank: int) -> Path:
        """Everything that the rank wrote to stdout and stderr."""
        return self.logs / f"rank{rank}.txt"

    def events_file(self, rank: int) -> Path:
        """What the rank reported of itself: started, points begun and done, an error, finished; JSON lines."""
        return self.logs / f"rank{rank}.events.jsonl"

    def stack_file(self, rank: int) -> Path:
        """The rank's Python stack, dumped when it was found to hang."""
        return self.logs / f"rank{rank}.stack.txt"

    def close(self, state: str, **status: Any) -> None:
        """Write down how the run ended."""
        self.closed = {"state": state, "date": datetime.now().date().isoformat(), **status}
        with suppress(OSError):  # a disk that is full must not hide how the run ended
            _write(self.status_file, json.dumps(self.closed, indent=1))

    def write_outcome(self, launch: int, outcome: dict[str, Any]) -> None:
        """Write down how the agent saw the launch end, in one step: a reader never sees half of it."""
        _write(self.outcome_file(launch), json.dumps(outcome))

    def outcome(self, launch: int) -> dict[str, Any] | None:
        """How the agent saw the launch end: `first` (ranks), `statuses` (by pid), `error`; None while it goes on."""
        file = self.outcome_file(launch)
        return json.loads(file.read_text()) if file.exists() else None

    @property
    def mark(self) -> str:
        """What every process of this run carries in its environment: 32 hexadecimal digits."""
        return hashlib.sha256(str(self.folder.absolute()).encode()).hexdigest()[:32]

    @property
    def status(self) -> dict[str, Any]:
        """state, date, seconds in all, in start-up and in measuring, launches; {} while the run goes on."""
        return json.loads(self.status_file.read_text()) if self.status_file.exists() else self.closed

    def log(self, rank: int) -> str:
        """What the rank printed, and its traceback if it raised."""
        file = self.log_file(rank)
        return file.read_text(errors="replace") if file.exists() else ""

    def excerpt(self, rank: int, most: int = 8_000, *, end: int | None = None) -> str:
        """The head and tail of what the rank printed, at most `most` bytes; up to byte `end` of its log."""
        return excerpt(self.log_file(rank), most, end=end)

    def unwritable(self) -> str:
        """Why nothing can be written to the folder; "" where something can."""
        probe = self.logs / "probe"
        try:
            probe.write_bytes(bytes(4096))
        except OSError as error:
            return error.strerror
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return ""


def fresh_folder(name: str) -> Path:
    """Make a folder of this name, or with a number after it: two notebooks may launch within one second."""
    runs_folder().mkdir(parents=True, exist_ok=True)
    folder, attempts = runs_folder() / name, itertools.count(1)
    while True:
        try:
            folder.mkdir(mode=0o700)
            return folder
        except FileExistsError:
            folder = runs_folder() / f"{name}-{next(attempts)}"


def _write(file: Path, text: str) -> None:
    """Write a file in one step: a reader never sees half of it."""
    draft = file.with_suffix(".part")
    try:
        draft.write_text(text)
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def read_lines(file: Path) -> list[dict]:
    """Give the JSON objects of a file, one a line; a last line that was cut off half-way is left out."""
    if not file.exists():
        return []
    rows = []
    for line in file.read_bytes().splitlines():
        with suppress(ValueError):  # killed in the middle of this line
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]
