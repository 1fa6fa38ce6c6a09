"""Whether a folder takes writes: its disk may be full, and its file system may stand still."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

WRITE_SECONDS = 5.0  # for one small file; a network's file system that serves others, too, takes less than a second
STANDS_STILL = f"a write has waited for {WRITE_SECONDS:.0f} s: its file system stands still"

Value = TypeVar("Value")


def bounded(action: Callable[[], Value], otherwise: Value, seconds: float = WRITE_SECONDS) -> Value:
    """Return what the action returns, or `otherwise` where it takes longer: then it goes on in a thread of its own.

    No signal ends a write to a file system that stands still. Raises what the action raises within its time.
    """
    found: list[Value] = []
    raised: list[OSError] = []

    def act() -> None:
        try:
            found.append(action())
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=act, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is to be had
        return action()
    thread.join(seconds)
    for error in raised:
        raise error
    return found[0] if found else otherwise


def why_not(probe: Path) -> str:
    """Return why a file of this name cannot be written and removed again; "" where it can."""
    return bounded(lambda: _tried(probe), STANDS_STILL)


def _tried(probe: Path) -> str:
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        return f"{error.strerror}{no_inodes(probe.parent)}"
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def no_inodes(folder: Path) -> str:
    """Return a remark where the folder's disk has room for bytes, but not for another file."""
    with suppress(OSError):
        disk = os.statvfs(folder)
        if disk.f_files and not disk.f_favail and disk.f_bavail:
            return " (no inodes are left, so no file can be made)"
    return ""
