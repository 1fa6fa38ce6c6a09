"""What every launch needs of the machine, asked for before the first one: a refused call does not say its name."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import platform
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack

# Errors that are refusals. Others, such as a full disk, have a text of their own (system_limits.py).
REFUSALS = (
    *(errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENOLCK),
    *(errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EINVAL),
)
SHARED_MEMORY = "/dev/shm"


@functools.cache
def require_needs() -> None:
    """Raise OSError, in one sentence, where the system refuses what every launch needs; asked until it is granted."""
    with tempfile.TemporaryDirectory(prefix="labkit-needs-") as folder:
        above = os.path.dirname(folder)
        local = "set TMPDIR to a folder on a local disk, such as /tmp, and restart the kernel"
        needs: list[tuple[Callable[[str], None], str, str]] = [
            (
                _follow_a_process,
                "the system call pidfd_open is refused",
                f"a launch needs Linux 5.3 or newer (here: {platform.release()}) and, in a container, "
                "a seccomp profile that allows the call, as Docker's does from version 20.10 on",
            ),
            (_lock_a_file, f"no file in {above} can be locked", f"the workers meet at a locked file there: {local}"),
            (_bind_a_socket, f"no Unix socket can be made in {above}", f"the workers are started through one: {local}"),
            (
                _share_memory,
                f"no file can be made in {SHARED_MEMORY}",
                "processes share memory and locks there. Have root mount it with mode 1777: "
                f"`mount -t tmpfs -o mode=1777 tmpfs {SHARED_MEMORY}`",
            ),
        ]
        for need, refused, advice in needs:
            try:
                need(folder)
            except (OSError, AttributeError) as error:
                why = error.strerror if isinstance(error, OSError) else "this Python was built without it"
                if getattr(error, "errno", errno.ENOSYS) in REFUSALS:
                    raise OSError(f"{refused} ({why}); {advice}") from None


def _follow_a_process(folder: str) -> None:
    os.close(os.pidfd_open(os.getpid()))


def _lock_a_file(folder: str) -> None:
    """Lock a file as torch's FileStore does."""
    with open(os.path.join(folder, "lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _bind_a_socket(folder: str) -> None:
    """Bind a socket by a short path: that of a Unix socket has at most 107 characters (unix(7))."""
    with ExitStack() as opened, socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        opened.callback(os.close, descriptor)
        listener.bind(f"/proc/self/fd/{descriptor}/socket")


def _share_memory(folder: str) -> None:
    tempfile.TemporaryFile(dir=SHARED_MEMORY).close()
