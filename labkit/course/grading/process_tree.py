"""A process with all that it has started, read from /proc: which they are, what they take, and how they are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, itself first."""
    pids = [pid]
    for pid_above in pids:
        with suppress(OSError):  # each of them, and each of its threads, may end while it is looked at
            for children in Path(f"/proc/{pid_above}/task").glob("*/children"):
                with suppress(OSError):
                    pids += map(int, children.read_text(encoding="utf-8").split())
    return pids


def memory_bytes(pids: list[int], more_than: int) -> int:
    """Return the memory of processes together.

    Pages that several of them share are counted for each, unless that makes more than `more_than` bytes; then they are
    shared out, which takes longer.
    """
    resident = sum(map(_resident, pids))
    return resident if resident <= more_than else sum(map(_own_share, pids))


def end(process: subprocess.Popen) -> None:
    """End a process and its child, the first process of a table of its own, with which all others there end."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)  # it starts no child while one is looked for
        with suppress(ProcessLookupError):  # it has just ended
            os.kill([process.pid, *tree(process.pid)[1:2]][-1], signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # for its child, and this one for all others


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * _PAGE
    return 0


def _own_share(pid: int) -> int:
    """Return what a process takes, of shared pages its share; all of them where the kernel does not say."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return _resident(pid)
