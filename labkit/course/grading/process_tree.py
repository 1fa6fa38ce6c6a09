"""A process with all that it has started, read from /proc: which they are, what they take, and how they are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROUNDS = 50  # looks for processes that were started while others were ended


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, itself first."""
    pids = [pid]
    for pid_above in pids:
        with suppress(OSError):  # each of them, and each of its threads, may end while it is looked at
            for children in Path(f"/proc/{pid_above}/task").glob("*/children"):
                with suppress(OSError):
                    pids += map(int, children.read_text().split())
    return pids


def memory_bytes(pid: int, more_than: int) -> int:
    """Return the memory of a process and all that it has started.

    Pages that several of them share are counted for each, unless that makes `more_than` bytes or more; then they are
    shared out, which takes longer.
    """
    pids = tree(pid)
    resident = sum(map(_resident, pids))
    return resident if resident <= more_than else sum(map(_own_share, pids))


def threads_of(user: int) -> int:
    """Return how many threads a user's processes have, which Linux counts where it limits a user's processes."""
    count = 0
    for tasks in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):
            if tasks.stat().st_uid == user:
                count += len(os.listdir(tasks))
    return count


def end(process: subprocess.Popen) -> None:
    """End a process, the leader of its session, and all that it has started; wait for it."""
    _signal([process.pid], signal.SIGSTOP)  # while it stands, what it has started keeps its place below it
    seen: set[int] = set()
    for _ in range(_ROUNDS):  # first all stand, so that none starts others while these are ended
        _signal(started := {*tree(process.pid)} - seen, signal.SIGSTOP)
        if not started:
            break
        seen |= started
    for _ in range(_ROUNDS):
        running = [pid for pid in tree(process.pid)[1:] if _runs(pid)]
        _signal(running, signal.SIGKILL)
        if not running:
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_all_of(user: int) -> None:
    """End every process of a user, whoever started it. Root alone may ask for it."""
    command = ["/bin/sh", "-c", "kill -KILL -1"]  # as that user; it ends itself, too
    subprocess.run(command, user=user, group=user, extra_groups=[], cwd="/", stderr=subprocess.DEVNULL, check=False)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _own_share(pid: int) -> int:
    """Return what a process takes, of shared pages its share; all of them where the kernel does not say."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return _resident(pid)


def _runs(pid: int) -> bool:
    """Whether a process has not ended: a zombie has, and its parent alone can clear it away."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
