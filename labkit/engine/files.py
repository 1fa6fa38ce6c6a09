"""Files on disks that may be full, stand still or be shared: written in one step, in bounded time, for their user."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from labkit.engine.errors import notice

WRITE_SECONDS = 5.0  # for one small file; a network's file system that serves others, too, takes less than a second
STANDS_STILL = f"a write has waited for {WRITE_SECONDS:.0f} s: its file system stands still"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Value = TypeVar("Value")


def make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing, for this user alone: names tell who measures what."""
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def replace_file(file: Path, text: str, *, errors: str = "strict", mode: int = 0o666) -> None:
    """Write a file in one step: a reader, and a hard link, has the old text or the new one, and nothing between.

    An interrupt or a full disk leaves the old file, and no draft. Several may write the same file: the last one counts.
    What is replaced keeps its mode; a new file has `mode` less the umask.
    """
    draft = file.with_name(f".{file.name}-{secrets.token_hex(4)}.part")
    try:
        draft.touch(mode, exist_ok=False)
        draft.write_text(text, encoding="utf-8", errors=errors)
        with suppress(FileNotFoundError):
            draft.chmod(stat.S_IMODE(file.stat().st_mode))
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def run_with_timeout(action: Callable[[], Value], otherwise: Value, seconds: float = WRITE_SECONDS) -> Value:
    """Return what the action returns, or `otherwise` where it takes longer: then it goes on in a thread of its own.

    No signal ends a write to a file system that stands still. Raises what the action raises within its time.
    """
    returned: list[Value] = []
    raised: list[OSError] = []

    def act() -> None:
        try:
            returned.append(action())
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
    return returned[0] if returned else otherwise


def why_unwritable(probe: Path) -> str:
    """Return why a file of this name cannot be written and removed again; "" where it can."""
    return run_with_timeout(lambda: _write_probe(probe), STANDS_STILL)


def _write_probe(probe: Path) -> str:
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def name_of_user(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def private_folder(kind: str) -> tuple[str, int]:
    """Make a temporary folder for this user; return it, and the descriptor that locks it while it is open (flock(2)).

    The folders of the same kind whose processes were all killed are removed: nothing locks them. What another user has
    given such a name is left alone.
    """
    prefix = f"labkit-{kind}-{os.geteuid()}-"
    for folder_left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is locked, or the file system knows no locks
            descriptor = os.open(folder_left, FOLDER)
            try:
                if (owner := os.fstat(descriptor).st_uid) != os.geteuid():
                    whose = f"{name_of_user(owner)} has made {folder_left}, named like a folder of your launches"
                    notice(f"{whose}; it is left alone: ask them or root to remove it", stacklevel=2)
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder_left, ignore_errors=True)
            finally:
                os.close(descriptor)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, FOLDER)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.isdir(folder):  # nobody removed it before it was locked
                return folder, descriptor
            os.close(descriptor)
