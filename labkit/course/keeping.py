"""The folder of all answers, and its lock: several notebooks write files in it, one at a time."""

from __future__ import annotations

import fcntl
import os
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
