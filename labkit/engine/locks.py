"""File locks in a folder that all users of a node share: one per GPU, and a ticket per launch.

A lock is held with flock(2), so the system releases it when its process ends, however it ends. The folder is /tmp, or
$LABKIT_LOCKS. What a user writes there, no other user can change: the folder is sticky and belongs to root. Nothing is
ever written to a file of another user, and no link is followed. Another user can hold a GPU's lock for as long as a
process of theirs lives, and be seen doing so; their files alone hold nothing.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.engine.errors import PlanError
from labkit.engine.files import name_of_user

READ_FLAGS = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # NONBLOCK: for a FIFO of that name, and for leases
NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
BITS_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
ATTEMPTS = 5
MOST_TICKET = 4096  # bytes of it that are read
MOST_GPUS = 1024
TICKETS, LOCKS, USERS = "labkit-launch-", "labkit-gpu-", "labkit-user-"
_DESCRIPTORS: set[int] = set()  # of all locks that this process holds


class LocksUnusable(OSError):
    """The folder of the locks cannot be used; the message says why and what to do."""


class NoLocksFolder(PlanError):
    """LABKIT_LOCKS names no folder, so that it would lock nothing; the message says what to do."""


def locks_folder() -> Path:
    """Return the folder of the locks: $LABKIT_LOCKS, or /tmp.

    Raises NoLocksFolder where the variable names none, and LocksUnusable where another user than root could remove
    what lies there.
    """
    named = os.environ.get("LABKIT_LOCKS")
    folder = Path(named or "/tmp")  # not $TMPDIR, which is one user's or one job's
    advice = "set LABKIT_LOCKS to a folder that root has made with mode 1777"
    try:
        status = folder.stat()
        why = "" if stat.S_ISDIR(status.st_mode) else "it is no folder"
    except OSError as error:
        status, why = None, str(error.strerror)
    if status is None or why:
        if named:
            raise NoLocksFolder(f"LABKIT_LOCKS={named} can hold no locks ({why}): {advice}, or leave it out")
        raise LocksUnusable(f"{folder}: {why}; {advice}")
    if status.st_uid not in (0, os.geteuid()):
        raise LocksUnusable(f"{folder} belongs to {name_of_user(status.st_uid)}, who could remove locks; {advice}")
    if status.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not status.st_mode & stat.S_ISVTX:
        raise LocksUnusable(f"other users could remove locks in {folder}; {advice}")
    return folder


class Lock:
    """A file that this process has locked, `descriptor`; `release` more than once changes nothing."""

    def __init__(self, descriptor: int):
        self.descriptor: int | None = descriptor
        self.process = os.getpid()
        _DESCRIPTORS.add(descriptor)

    def release(self) -> None:
        """Unlock the file. In a process that was forked from its holder, nothing happens: the lock is not its own."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None and self.process == os.getpid():
            _DESCRIPTORS.discard(descriptor)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def lock(file: Path, mode: int = 0o644) -> Lock | None:
    """Lock a file, which is made where it is missing; None where another process holds the lock.

    Raises LocksUnusable for what is no file, cannot be opened or, where nobody else is to lock it (`mode`), is open to
    others or theirs: that holds nobody up.
    """
    for _ in range(ATTEMPTS):
        try:
            descriptor = _open(file, mode)
        except FileExistsError:  # another process made it just now
            continue
        except OSError as error:
            raise LocksUnusable(f"{file} cannot be locked: {error.strerror}") from None
        try:
            if not stat.S_ISREG((status := os.fstat(descriptor)).st_mode):
                raise LocksUnusable("it is no file")
            if not mode & BITS_OF_OTHERS and (status.st_uid != os.geteuid() or status.st_mode & BITS_OF_OTHERS):
                raise LocksUnusable(
                    f"{name_of_user(status.st_uid)} has opened it to others; ask them or root to remove it"
                )
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(file, descriptor):
                return Lock(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise LocksUnusable(f"{file} cannot be locked: {error.strerror or error}") from None
        os.close(descriptor)  # somebody removed it before it was locked
    raise LocksUnusable(f"{file} cannot be locked: other processes replace it all the time")


def _open(file: Path, mode: int) -> int:
    try:
        return os.open(file, READ_FLAGS)
    except FileNotFoundError:
        descriptor = os.open(file, NEW_FILE_FLAGS, mode)
    os.fchmod(descriptor, mode)  # whatever the umask: other users lock it, too
    return descriptor


def _is_same_file(file: Path, descriptor: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(file, follow_symlinks=False), os.fstat(descriptor))
    return False


def gpu_file(folder: Path, name: str) -> Path:
    """Return the file of the lock of a GPU, by its UUID."""
    return folder / f"{LOCKS}{re.sub(r'[^A-Za-z0-9-]', '_', name)[:100]}.lock"


def user_file(folder: Path) -> Path:
    """Return the file that the launches of this user lock in turns; nobody else can open it."""
    return folder / f"{USERS}{os.geteuid()}.lock"


@dataclass(frozen=True)
class TicketEntry:
    """What a launch that goes on says of itself, and what the system says of it.

    user: the owner of the ticket's file. since: when the ticket was written last, in Unix seconds by the system.
    workers: how many it starts. waits: for GPUs ("gpus"), for an end of the same user's launches ("limit"), or for
    nothing (""). gpus: names of those that it holds; none while it waits, and on CPUs.
    """

    user: int
    since: float
    workers: int
    waits: str
    gpus: tuple[str, ...]
    file: Path


class Ticket:
    """The file that says what a launch of this process holds or waits for; locked for as long as it does."""

    def __init__(self, folder: Path, prefix: str = TICKETS):
        for _ in range(ATTEMPTS):
            self.file = folder / f"{prefix}{os.geteuid()}-{os.getpid()}-{secrets.token_hex(4)}.json"
            try:
                descriptor = os.open(self.file, NEW_FILE_FLAGS, 0o644)
                os.fchmod(descriptor, 0o644)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # a reader looked whether it is locked
                os.close(descriptor)
                continue
            except OSError as error:
                raise LocksUnusable(f"{folder} cannot be used for locks: {error.strerror}") from None
            if _is_same_file(self.file, descriptor):
                self.lock = Lock(descriptor)
                return
            os.close(descriptor)
        raise LocksUnusable(f"{folder} cannot be used for locks: other processes lock every new file there")

    def write(self, *, workers: int, waits: str = "", gpus: tuple[str, ...] = ()) -> None:
        """Say what the launch holds or waits for. A ticket that a full disk cannot hold says nothing."""
        text = json.dumps({"workers": workers, "waits": waits, "gpus": gpus}).encode()
        if self.lock.descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self.lock.descriptor, os.pwrite(self.lock.descriptor, text, 0))

    def release(self) -> None:
        """Remove the ticket."""
        if self.lock.descriptor is not None and self.lock.process == os.getpid():
            with suppress(OSError):
                self.file.unlink(missing_ok=True)
        self.lock.release()


def ticket_entries(folder: Path, besides: Path | None = None, prefix: str = TICKETS) -> list[TicketEntry]:
    """Return what the launches of all users say that go on, in the order in which they said it; `besides` one file.

    `prefix`: of the tickets' names, where others than launches write some.

    A ticket of this user whose process has ended is removed; those of others are passed over.
    """
    with suppress(OSError):
        with os.scandir(folder) as listing:
            files = [Path(item.path) for item in listing if item.name.startswith(prefix)]
        read = (_read_ticket(file) for file in files if file != besides)
        return sorted((entry for entry in read if entry is not None), key=lambda entry: entry.since)
    return []


def _read_ticket(file: Path) -> TicketEntry | None:
    try:
        descriptor = os.open(file, READ_FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_locked(descriptor):
            if status.st_uid == os.geteuid():
                file.unlink(missing_ok=True)
            return None
        ticket = json.loads(os.pread(descriptor, MOST_TICKET, 0))
        return _parse_ticket(ticket, status, file)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False  # closing the descriptor releases it


def _parse_ticket(ticket: dict[str, Any], status: os.stat_result, file: Path) -> TicketEntry:
    gpus = tuple(str(name) for name in ticket["gpus"][:MOST_GPUS])
    workers = int(ticket["workers"])
    if not 0 < workers <= MOST_GPUS or not math.isfinite(status.st_ctime):
        raise ValueError(workers)
    return TicketEntry(status.st_uid, status.st_ctime, workers, str(ticket["waits"]), gpus, file)


def _forget() -> None:
    """Close the locks of the process that this one was forked from: they are not its own."""
    for descriptor in _DESCRIPTORS:
        with suppress(OSError):
            os.close(descriptor)
    _DESCRIPTORS.clear()


os.register_at_fork(after_in_child=_forget)
