"""File locks in a folder that all users of a node share: one per GPU, and a turnstile for those who wait for GPUs.

A lock is held with flock(2), so the system releases it when its process ends, however it ends, and /proc/locks tells
who holds it. The folder is /tmp, or $LABKIT_LOCKS. It is sticky and belongs to root, so that no user can remove what
another one has made. The files stay empty, and no link is followed. Another user can hold a lock that all users share
for as long as a process of theirs lives, and be seen doing so; their files alone hold nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from labkit.engine.errors import PlanError
from labkit.engine.files import name_of_user

READ_FLAGS = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # NONBLOCK: for a FIFO of that name, and for leases
NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
BITS_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
ATTEMPTS = 5
MOST_COMMAND = 40  # characters of it that are shown
SYSTEM_LOCKS = Path("/proc/locks")
LOCK_LINE = re.compile(
    r"\d+: FLOCK +ADVISORY +\w+ +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) "
)  # not of those that wait for it
_HELD: set[Lock] = set()  # by this process


class LocksUnusable(OSError):
    """The folder of the locks cannot be used; the message says why and what to do."""


class NoLocksFolder(PlanError):
    """LABKIT_LOCKS names no folder, so that it would lock nothing; the message says what to do."""


def locks_folder() -> Path:
    """Return the folder of the locks: $LABKIT_LOCKS, or /tmp.

    Raises NoLocksFolder where the variable names none, and LocksUnusable where no file can be made there, or another
    user than root could remove one.
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
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LocksUnusable(f"{folder} cannot be used for locks: {error.strerror}") from None
    return folder


class Lock:
    """A file that this process has locked, until it ends; what is forked from it holds nothing."""

    def __init__(self, descriptor: int):
        self.descriptor: int | None = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Unlock the file; more than once changes nothing."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            _HELD.discard(self)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def lock(file: Path, mode: int = 0o644, kind: int = fcntl.LOCK_EX) -> Lock | None:
    """Lock a file, which is made where it is missing; None where another process holds the lock.

    A lock of the kind LOCK_SH is shared: the same file can be locked so again.

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
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
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


def lock_first(
    files: Iterable[Path],
    count: int,
    held: ExitStack,
    unusable: Callable[[Path, LocksUnusable], None],
    mode: int = 0o644,
) -> list[Path]:
    """Lock the first `count` files that are free, until `held` is closed; none where fewer are. Return the free ones.

    `unusable` is told of a file that cannot be locked. It counts as free: it holds nobody up.
    """
    free: list[Path] = []
    with ExitStack() as taken:
        for file in files:
            if len(free) == count:
                break
            try:
                if (found := lock(file, mode)) is None:
                    continue
                taken.callback(found.release)
            except LocksUnusable as error:
                unusable(file, error)
            free.append(file)
        if len(free) == count:
            held.push(taken.pop_all())
    return free


def gpu_file(folder: Path, name: str) -> Path:
    """Return the file of the lock of a GPU, by its UUID."""
    return folder / f"labkit-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)[:100]}.lock"


def turnstile_file(folder: Path, name: str) -> Path:
    """Return the file that a launch locks while it waits for GPUs; `name` is the first GPU that it sees."""
    return gpu_file(folder, name).with_suffix(".turnstile")


def user_file(folder: Path, number: int) -> Path:
    """Return a file that a launch of this user locks for each GPU that it takes; nobody else can open it."""
    return folder / f"labkit-user-{os.geteuid()}-{number}.lock"


def cores_file(folder: Path) -> Path:
    """Return the file that a launch on CPUs locks, shared, once per worker."""
    return folder / "labkit-cores.lock"


def holding_pids(file: Path) -> list[int]:
    """Return the processes that hold locks of a file, each as often as it holds one.

    A process that this one cannot see, as from within a container, is left out.
    """
    try:
        status = file.stat(follow_symlinks=False)
        lines = SYSTEM_LOCKS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = [match.groups() for line in lines if (match := LOCK_LINE.match(line)) and int(match[4]) == status.st_ino]
    device = (os.major(status.st_dev), os.minor(status.st_dev))
    exact = [pid for pid, major, minor, _ in found if (int(major, 16), int(minor, 16)) == device]
    return [int(pid) for pid in exact or (pid for pid, *_ in found)]  # overlayfs: stat(2) gives another device


def user_of(pid: int) -> str:
    """Return the name of the user whose process it is. Raises psutil.Error where it has ended, or is hidden."""
    return name_of_user(psutil.Process(pid).uids().real)


def owner(pids: Iterable[int]) -> str:
    """Return which of these processes holds a lock: user, number, command; "another process" where none is seen."""
    for pid in pids:
        with suppress(psutil.Error, OSError):
            program, *arguments = psutil.Process(pid).cmdline() or ["?"]
            command = " ".join([os.path.basename(program), *arguments])
            shown = "".join(letter if letter.isprintable() else "?" for letter in command[:MOST_COMMAND])
            return f"{user_of(pid)} (process {pid}: {shown}{'…' * (len(command) > MOST_COMMAND)})"
    return "another process"


def _forget() -> None:
    """Close the locks of the process that this one was forked from: they are not its own."""
    for held in _HELD:
        descriptor, held.descriptor = held.descriptor, None
        if descriptor is not None:
            os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_forget)
