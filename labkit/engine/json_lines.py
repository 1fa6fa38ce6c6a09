"""Files of JSON lines: written row by row, read as they grow or as a whole, or only counted."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from json import dumps  # a lab may patch the module's
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from labkit.engine.errors import DamagedRun

MOST_BYTES = 2**30  # of one file; its rows take about ten times as much memory
MOST_NEW_BYTES = 2**24  # that one look at a growing file reads: the rest comes with the next look


class JsonLines:
    """The JSON objects of a file that grows; each call of `new_objects` reads what was appended since."""

    def __init__(self, file: Path, *, elsewhere: bool = False):
        self.file, self.elsewhere, self._read, self._half = file, elsewhere, 0, b""

    def new_objects(self) -> list[dict]:
        """Return the objects of the lines that were completed since the last call."""
        if (now := size_bytes(self.file, elsewhere=self.elsewhere)) < self._read:  # another file of that name
            self._read, self._half = 0, b""
        if now == self._read:
            return []
        with open_regular(self.file) as source:
            source.seek(self._read)
            data = source.read(MOST_NEW_BYTES)
        self._read += len(data)
        *lines, self._half = (self._half + data).split(b"\n")
        self._half = self._half if len(self._half) < MOST_NEW_BYTES else b""  # nothing that a worker writes is as long
        return list(_objects(lines))


def read_lines(file: Path) -> list[dict]:
    """Return the JSON objects of a file, one a line; a last line that was cut off half-way is left out.

    Raises DamagedRun where the file is none that can be read.
    """
    return list(_objects(file_bytes(file).splitlines())) if file.exists() else []


def file_bytes(file: Path) -> bytes:
    """Return the bytes of a regular file of bounded size. Raises DamagedRun otherwise, FileNotFoundError."""
    with open_regular(file) as source:
        return source.read()


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file of bounded size; opening a FIFO would wait forever."""
    about = file.stat()
    if not stat.S_ISREG(about.st_mode):
        raise DamagedRun(f"{file} cannot be read: it is not a regular file")
    if about.st_size > MOST_BYTES:
        most = f"at most {MOST_BYTES / 1e9:.1f} GB are read; read it in parts, or measure fewer rows"
        raise DamagedRun(f"{file} cannot be read: it holds {about.st_size / 1e9:.1f} GB, and {most}")
    return file.open("rb")


def open_to_append(file: Path) -> TextIO:
    """Open a file of JSON lines for more, on a fresh line: a killed worker may have left its last one half-written."""
    lines = open(file, "a", buffering=1, encoding="utf-8", opener=_open_without_waiting)  # noqa: SIM115
    if lines.tell():
        lines.write("\n")
    return lines


def row_line(rank: int, gpu: int | None, point: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return one row as a line: who measured it, the point's knobs, `status`, `warm_up`, then what was measured.

    Scalars of NumPy and torch become numbers. Raises TypeError, naming the field, for what JSON cannot hold.
    """
    who = {"point": point["point"], "rank": rank, "gpu": gpu}
    row = {**who, **point, "status": "ok", "warm_up": False, **measured}
    try:
        return dumps(row, default=_number) + "\n"
    except (TypeError, ValueError):
        for name, value in row.items():
            _require_json(name, value)
        raise


def _require_json(name: str, value: Any) -> None:
    try:
        dumps({name: value}, default=_number)
    except (TypeError, ValueError) as error:
        allowed = "a row holds numbers, strings, and lists or dicts of them"
        raise TypeError(f"record({name}=…): {allowed}, not a {type(value).__name__} ({error})") from None


def _number(value: Any) -> Any:
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} is none of these")


def tally(files: Iterable[Path]) -> dict[str, Any]:
    """Return the counts of some files' rows: `points`, `rows`, `not_ok` (rows by status), and the files' `bytes`.

    `missing` counts the points by the status of a row that is not ok. Spans are no rows.
    """
    points: set[str] = set()
    missing: dict[str, set[str]] = {}
    statuses: Counter[str] = Counter()
    bytes_read = 0
    for file in files:
        with open_regular(file) as source:
            for line in source:
                bytes_read += len(line)
                for row in _objects([line]):
                    if "start_us" not in row:
                        point, status = str(row.get("point")), str(row.get("status"))
                        points.add(point)
                        statuses[status] += 1
                        missing.setdefault(status, set()).add(point)
    not_ok = {status: count for status, count in statuses.most_common() if status != "ok"}
    counts = {"points": len(points), "rows": statuses.total(), "not_ok": not_ok, "bytes": bytes_read}
    return counts | {"missing": {status: len(missing[status]) for status in not_ok}}


def size_bytes(file: Path, *, elsewhere: bool = False) -> int:
    """Return the bytes in the file; 0 where there is none.

    Where another machine appends to it (`elsewhere`), it is opened first: then a network's file system asks the server,
    while what stat(2) says may be a minute old (nfs(5), close-to-open cache consistency).
    """
    try:
        if elsewhere:
            with open(file, "rb", opener=_open_without_waiting) as opened:
                return os.fstat(opened.fileno()).st_size
        return os.stat(file).st_size
    except OSError:
        return 0


def _open_without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK, 0o666)  # opening a FIFO would wait for its other end


def _objects(lines: Iterable[bytes]) -> Iterator[dict]:
    for line in lines:
        with suppress(ValueError, RecursionError):  # a worker was killed in the middle of this line
            if isinstance(row := json.loads(line), dict):
                yield row
