"""A process with all that it has started, read from /proc: which they are, what they take, and how they are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, itself first."""
    pids = [pid]
    for pid_above in pids:
        for children in _of_threads(pid_above, "children"):
            pids += map(int, children.split())
    return pids


def memory_bytes(pids: list[int], more_than: int) -> int:
    """Return the memory of processes together.

    Pages that several of them share are counted for each, unless that makes more than `more_than` bytes; then they are
    shared out, which takes longer.
    """
    resident = sum(map(_resident, pids))
    return resident if resident <= more_than else sum(map(_own_share, pids))


def queued_bytes(pid: int) -> int:
    """Return what lies in the sockets of a process's network: sent, and not yet received (proc_pid_net(5))."""
    total = 0
    with suppress(OSError):
        for name in ("tcp", "udp", "netlink"):
            for line in Path(f"/proc/{pid}/net/{name}").read_text(encoding="utf-8").splitlines()[1:]:
                fields = line.split()
                if name == "netlink":
                    total += sum(map(int, fields[4:6]))
                else:
                    total += sum(int(field, 16) for field in fields[4].split(":"))
    return total


def end(process: subprocess.Popen) -> None:
    """End a process and its child, the first process of a table of its own, with which all others there end."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)  # it starts no child while one is looked for
        with suppress(ProcessLookupError):  # it has just ended
            os.kill([process.pid, *tree(process.pid)[1:2]][-1], signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # for its child, and this one for all others


def times(pids: list[int]) -> tuple[float, float]:
    """Return for how many seconds processes have run, together, and for how many they have waited for a core."""
    ran_ns = waited_ns = 0
    for pid in pids:
        for text in _of_threads(pid, "schedstat"):
            ran, waited, _ = map(int, text.split())
            ran_ns, waited_ns = ran_ns + ran, waited_ns + waited
    return ran_ns / 1e9, waited_ns / 1e9


def _resident(pid: int) -> int:
    """Return the resident memory of a process: of its threads' first that tells, since one that has ended has none."""
    return next((pages * _PAGE for text in _of_threads(pid, "statm") if (pages := int(text.split()[1]))), 0)


def _own_share(pid: int) -> int:
    """Return what a process takes, of shared pages its share; all of them where the kernel does not say."""
    for text in _of_threads(pid, "smaps_rollup"):
        if share := next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0):
            return 1024 * share
    return _resident(pid)


def _of_threads(pid: int, name: str) -> Iterator[str]:
    """Yield what a file of /proc tells of each thread of a process; each may end while it is looked at."""
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob(f"*/{name}"):
            with suppress(OSError):
                if text := file.read_text(encoding="utf-8"):
                    yield text
