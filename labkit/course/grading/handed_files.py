"""The files that a student handed in, in a folder or a zip: names, times and bounded texts. Nothing is unpacked."""

from __future__ import annotations

import io
import os
import re
import stat
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

MOST_BYTES = 20 * 2**20  # of a file: a notebook with its pictures has a few MiB; JSON takes up to 25 times as much
MOST_OF_ZIP = 40 * 2**20  # of a zip; its list of files takes up to 8 times as much
MOST_UNPACKED = 10 * MOST_BYTES  # of all files that are read of a zip
MOST_FOLDERS = 8  # below each other
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other ways unpack without a limit
ZIP = re.compile(r"\.zip$", re.IGNORECASE)
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers add an ending
COPY = re.compile(r"(?:[ _]?\((\d+)\)|[ _-]+copy[ _]?(\d*))$", re.IGNORECASE)  # of a browser, of JupyterLab, of Windows
_SYSTEM = re.compile(r"\..*|~\$.*|__MACOSX|__pycache__|Thumbs\.db|desktop\.ini|Icon\r", re.IGNORECASE)


@dataclass(frozen=True)
class HandedFile:
    """One file: its name below the student's folder, when it was saved, and how it is read."""

    name: str
    saved: float
    read: Callable[[], bytes]

    @property
    def copy_number(self) -> int:
        """The number of a copy, as 2 of "name (2).ipynb" and of "name-Copy2.ipynb"; 0 of what is no copy."""
        copy = COPY.search(stem_of(self.name))
        return int((copy[1] or copy[2] or "1")[:9]) if copy else 0


@dataclass
class HandedFiles:
    """The files that may hold answers, the names of others, and sentences on what cannot be read."""

    files: list[HandedFile] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def is_of_a_system(name: str) -> bool:
    """Whether a file or folder of this name was made by a system, not by a student."""
    return bool(_SYSTEM.fullmatch(name))


def stem_of(name: str) -> str:
    """Return a file's name without folders and without the ending of a notebook, zip or module."""
    return re.sub(r"\.py$", "", ZIP.sub("", NOTEBOOK.sub("", PurePosixPath(name).name)), flags=re.IGNORECASE)


def collect(entry: Path, wanted: Callable[[str], bool], found: HandedFiles) -> None:
    """Add what is below a folder, or in one file or zip, to what was `found`; `wanted` says which names are read."""
    if not entry.is_dir():
        _add(entry, entry.name, wanted, found)
        return
    for place, folders, names in os.walk(entry, followlinks=False):
        folders[:] = sorted(name for name in folders if not is_of_a_system(name))
        if len(Path(place).relative_to(entry).parts) == MOST_FOLDERS and folders:
            found.problems.append(f"folders below {MOST_FOLDERS} others are not read")
            folders[:] = []
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *links]):
            if not is_of_a_system(name):
                file = Path(place, name)
                _add(file, file.relative_to(entry).as_posix(), wanted, found)


def read_file(file: Path, most: int = MOST_BYTES) -> bytes:
    """Return what a regular file holds. Raises ValueError for anything else, without waiting for who writes to it."""
    if not stat.S_ISREG(file.lstat().st_mode):
        raise ValueError("it is no regular file")
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # it may be another one by now
    with open(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_size > most:
            raise ValueError(f"it has more than {most // 2**20} MiB")
        return opened.read(most)


def unreadable(name: str, error: Exception) -> str:
    """Return the sentence on a file that cannot be read."""
    return f"{name} cannot be read ({type(error).__name__}: {str(error)[:80]})"


def _add(file: Path, name: str, wanted: Callable[[str], bool], found: HandedFiles) -> None:
    try:
        if file.is_symlink():
            found.others.append(f"{name} (a link)")
        elif ZIP.search(name):
            _add_members(file, name, wanted, found)
        elif wanted(name):
            found.files.append(HandedFile(name, file.lstat().st_mtime_ns / 1e9, partial(read_file, file)))
        else:
            found.others.append(name)
    except Exception as error:  # whatever one student's file does, the others are graded
        found.problems.append(unreadable(name, error))


def _add_members(file: Path, name: str, wanted: Callable[[str], bool], found: HandedFiles) -> None:
    archive, unpacked = zipfile.ZipFile(io.BytesIO(read_file(file, MOST_OF_ZIP))), 0
    for member in archive.infolist():
        parts = [part for part in re.split(r"[/\\]", member.filename) if part not in ("", ".", "..")]
        if member.is_dir() or not parts or any(map(is_of_a_system, parts)):
            continue
        label = "/".join([name, *parts])
        if not wanted(label):
            found.others.append(label)
        elif unpacked + member.file_size > MOST_UNPACKED:
            found.problems.append(f"{label} is not read: {name} holds more than {MOST_UNPACKED // 2**20} MiB")
        else:
            unpacked += member.file_size
            saved = time.mktime((*member.date_time, 0, 0, -1))
            found.files.append(HandedFile(label, saved, partial(_read_member, archive, member)))


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.flag_bits & 1:
        raise ValueError("it is encrypted")
    if member.compress_type not in PACKED:
        raise ValueError("it is compressed in an unusual way: hand in a plain zip")
    if member.file_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES // 2**20} MiB")
    with archive.open(member) as opened:
        return opened.read(MOST_BYTES)
