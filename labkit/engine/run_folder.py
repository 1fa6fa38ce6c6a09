"""A run's folder: the one owner of its file names, of what is written and read, and of whether it takes writes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.engine.errors import DamagedRun, NowhereToWrite, notice
from labkit.engine.files import make_private, name_of_user, replace_file, run_with_timeout, why_unwritable
from labkit.engine.json_lines import file_bytes, read_lines
from labkit.engine.log_text import log_excerpt
from labkit.node.conditions import NEVER_MEASURED, Conditions, parse
from labkit.repository import REPOSITORY


def runs_folder() -> Path:
    """Return the folder that new runs go to: $LABKIT_RUNS, or runs/ at the top of the repository.

    Raises NowhereToWrite where its name is no UTF-8: error messages and notebooks could not show it.
    """
    folder = os.environ.get("LABKIT_RUNS") or str(REPOSITORY / "runs")
    try:
        folder.encode()
    except UnicodeEncodeError:
        name, encoding = os.fsencode(folder), sys.getfilesystemencoding()
        why = "is not UTF-8: choose another name"
        if encoding != "utf-8":
            why = f"cannot be read in the locale's encoding, {encoding}: set LC_ALL=C.UTF-8 and restart the kernel"
        raise NowhereToWrite(f"LABKIT_RUNS={name!r} {why}") from None
    return Path(folder).absolute()  # the agent may stand elsewhere


class RunFolder:
    """Where the files of one run lie, and what they say; `closed` is how this process saw the run end, as `status`.

    of_node: whose conditions are meant; each node of several writes its own files.
    """

    def __init__(self, folder: Path | str, *, of_node: int = 0):
        self.folder, self.of_node = Path(folder), of_node
        self.closed: dict[str, Any] = {}
        # What every process of this run carries in its environment: 32 digits, the same after the folder has moved.
        self.mark = hashlib.sha256(os.fsencode(self.folder.absolute())).hexdigest()[:32]

    # The file names: no other module spells them.
    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    @property
    def node_file(self) -> Path:
        return self.folder / "node.json"

    @property
    def nodes_file(self) -> Path:
        """The inventories of all nodes, of a run on more than one."""
        return self.folder / "nodes.json"

    @property
    def hosts_file(self) -> Path:
        """The host names of a run's nodes; kept with the logs, so that no recorded run tells them."""
        return self.logs / "hosts.json"

    @property
    def status_file(self) -> Path:
        return self.folder / "status.json"

    @property
    def conditions_file(self) -> Path:
        """The state of the machine before and after the run; labkit.node.conditions describes it."""
        return self._file_of_node("conditions", ".json")

    @property
    def samples_file(self) -> Path:
        """The state of the machine during the run, a line per look and device."""
        return self._file_of_node("samples", ".jsonl")

    def _file_of_node(self, stem: str, suffix: str) -> Path:
        return self.folder / (f"{stem}-node{self.of_node}{suffix}" if self.of_node else f"{stem}{suffix}")

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def launcher_log(self) -> Path:
        """What a bare torchrun said (`make bench`)."""
        return self.logs / "torchrun.txt"

    @property
    def elastic_folder(self) -> Path:
        """What torchrun's agent writes of its workers; left to itself, it makes a folder in TMPDIR and leaves it."""
        return self.logs / "elastic"

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
        text = json.dumps(self.closed, indent=1)
        with suppress(OSError):  # a disk that is full, or stands still, must not hide how the run ended
            run_with_timeout(lambda: replace_file(self.status_file, text), None)

    def kept_conditions(self) -> Conditions:
        """Return the state of the machine that the folder's files tell; `missing` says why where they tell none."""
        try:
            text = file_bytes(self.conditions_file).decode(errors="replace")
            return parse(text, read_lines(self.samples_file))
        except FileNotFoundError:
            return Conditions(missing=NEVER_MEASURED)
        except (OSError, DamagedRun) as error:
            return Conditions(missing=f"This run's conditions cannot be read: {error}")

    def keep_conditions(self, text: str) -> None:
        """Write the conditions of the run, instead of those that were written before."""
        with suppress(OSError):  # as in `close`
            replace_file(self.conditions_file, text)

    @property
    def status(self) -> dict[str, Any]:
        """state, why, date, seconds in all, in start-up and in measuring, launches; {} while the run goes on.

        state: finished, failed or interrupted; unknown where the file is damaged: the rows can still be read. why:
        what failed, in a sentence.
        """
        try:
            if isinstance(status := json.loads(file_bytes(self.status_file)), dict):
                return status
            why = "it holds no JSON object"
        except (FileNotFoundError, NotADirectoryError):
            return self.closed
        except (OSError, ValueError, RecursionError) as error:
            why = str(error)
        return self.closed or {"state": "unknown", "why": f"{self.status_file.name} cannot be read: {why}"}

    def log(self, rank: int) -> str:
        """Return what the rank printed, and its traceback if it raised."""
        file = self.log_file(rank)
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def excerpt(self, rank: int, most: int = 8_000, *, end: int | None = None) -> str:
        """Return the head and tail of what the rank printed, at most `most` bytes; up to byte `end` of its log."""
        return log_excerpt(self.log_file(rank), most, end=end)

    def folder_lost(self) -> str:
        """Return that the folder was removed, moved or closed to its user while the run went on, or ""."""
        there = False
        for place in (self.plan_file, self.log_file(0)):
            try:
                place.stat()
                there = True
            except PermissionError as error:
                why = f"({error.strerror}): while the run went on, its permissions were changed"
                advice = f"Run `chmod u+rwx {place.parent}`, then read the rows or launch again"
                return f"{place.parent} cannot be read any more {why}. {advice}"
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:  # a file system that is slow to answer
                there = True
        return "" if there else f"the run's folder {self.folder} was removed, or moved elsewhere, while the run went on"

    def unwritable(self) -> str:
        """Return why nothing can be written to the folder; "" where something can."""
        return why_unwritable(self.logs / "probe")


def fresh_folder(name: str) -> Path:
    """Make a folder of this name, or with a number after it: two notebooks may launch within one second."""
    make_private(runs_folder())
    _warn_of_others(runs_folder())
    folder, attempts = runs_folder() / name, itertools.count(1)
    while True:
        try:
            folder.mkdir(mode=0o700)
            return folder
        except FileExistsError:
            folder = runs_folder() / f"{name}-{next(attempts)}"


def _warn_of_others(folder: Path) -> None:
    """Warn where another user could rename or replace the folders in this one, or a folder above it."""
    user = os.geteuid()
    trusted = {0, user} if user else {0, REPOSITORY.stat().st_uid}  # whose code root runs, may do everything anyway
    for place in dict.fromkeys((folder, *folder.parents, *folder.resolve().parents)):
        status = place.stat()
        can = "can see, rename and replace your runs" if place == folder else f"can rename and replace {folder}"
        if status.st_uid not in trusted:
            risk = f"{place} belongs to {name_of_user(status.st_uid)}, who {can}"
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            risk = f"every user may write to {place}, and {can}"
        else:
            continue
        notice(f"{risk}. Set LABKIT_RUNS to a folder of your own", stacklevel=1)
        return
