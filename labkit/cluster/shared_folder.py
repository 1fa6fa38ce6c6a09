"""The folder that a kernel and its stations share: a file for what each station tells, and one for requests.

srun brings requests, too. It is lost where Slurm's own network is; the folder is lost where its file system is.
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.engine.errors import MAKE_ROOM, NowhereToWrite
from labkit.engine.files import make_private, run_with_timeout
from labkit.engine.json_lines import JsonLines
from labkit.engine.run_folder import runs_folder

# What takes longer goes on beside: srun brings a request, too, and nobody waits for the end of the folder.
APPEND_SECONDS, CLEAR_SECONDS = 0.2, 1.0
STATION_ERROR = "labkit: error: "  # begins a line that srun brings from a station that cannot write in the folder


class SharedFolder:
    """The kernel's end: it makes the folder, asks, reads, and removes it, which ends every station that is left.

    `setup` are lines of bash for `start`, the script that starts a station on each of `count` nodes.
    """

    def __init__(self, count: int, setup: tuple[str, ...]):
        folder = None
        try:
            make_private(runs_folder())
            self.folder = folder = Path(tempfile.mkdtemp(prefix=".nodes-", dir=runs_folder()))
            self.start = self.folder / "start.sh"
            self.start.write_text("".join(f"{line}\n" for line in (*setup, 'exec "$@"')), encoding="utf-8")
            for file in (requests_file(self.folder), *(node_file(self.folder, index) for index in range(count))):
                file.touch(mode=0o600)
        except OSError as error:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise NowhereToWrite(f"{runs_folder()} cannot be written: {error.strerror}. {MAKE_ROOM}") from None
        self._lines = [JsonLines(node_file(self.folder, index), elsewhere=True) for index in range(count)]

    def new_messages(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield what the stations have told since the last call, each with its node."""
        for index, lines in enumerate(self._lines):
            for line in lines.new_objects():
                yield index, line

    def append_request(self, request: Mapping[str, Any]) -> None:
        """Write a request for stations that srun may not reach."""

        def append() -> None:
            with requests_file(self.folder).open("a", encoding="utf-8") as requests:
                requests.write(json.dumps(request) + "\n")

        with suppress(OSError):
            run_with_timeout(append, None, APPEND_SECONDS)

    def clear(self) -> None:
        """Remove the folder; more than once changes nothing."""
        run_with_timeout(lambda: shutil.rmtree(self.folder, ignore_errors=True), None, CLEAR_SECONDS)


def node_file(folder: Path, index: int) -> Path:
    """Return the file to which one station appends."""
    return folder / f"node{index}.jsonl"


def requests_file(folder: Path) -> Path:
    """Return the file to which the kernel appends."""
    return folder / "requests.jsonl"


def is_gone(file: Path) -> bool:
    """Whether nobody has the file any more; it is opened, so that a network's file system asks its server."""
    try:
        with file.open("rb"):
            return False
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ESTALE)
