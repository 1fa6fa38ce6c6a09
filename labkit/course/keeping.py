"""The folder of all answers, and files in it that several notebooks write: one at a time, each replaced in one step."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.repository import REPOSITORY


def folder() -> Path:
    """Return the folder of all answers: $LABKIT_ANSWERS, or notebooks/answers/, which git ignores."""
    return Path(os.environ.get("LABKIT_ANSWERS") or REPOSITORY / "notebooks" / "answers")


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Make the folder, and hold its lock: whoever else asks for it waits. Raises OSError where it cannot be made."""
    place.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(file: Path, text: str) -> None:
    """Write a file anew in one step: a reader meets the old text or the new one, and nothing between."""
    descriptor, draft = tempfile.mkstemp(prefix=file.name, dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as writing:
            writing.write(text)
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
