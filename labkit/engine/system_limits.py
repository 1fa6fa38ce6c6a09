"""Which limit of the system is behind a process or a file that could not be had."""

from __future__ import annotations

import os
import re
import resource
import tempfile
from contextlib import suppress

LITTLE_ROOM = 2**16  # bytes: a lock takes 4096 in /dev/shm
NO_ROOM = re.compile("No space left on device|(out of|insufficient) shared memory")
IN_SHARED_MEMORY = re.compile("/dev/shm|shared memory|</torch_")


def with_limit(reason: str) -> str:
    """Return the reason why a process or its files could not be had, with the system's limit where one is behind it."""
    if "Too many open files" in reason:
        return f"{reason} (`ulimit -n` allows {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} in each process)"
    if "Resource temporarily unavailable" in reason or "can't start new thread" in reason:
        return f"{reason} ({_process_limits_text()})"
    if "Read-only file system" in reason and not os.access("/dev/shm", os.W_OK):
        return f"{reason} (/dev/shm cannot be written, where processes share what they lock)"
    if NO_ROOM.search(reason) and (places := _full_places(reason)):
        return f"{reason} ({'; '.join(places)})"
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if "ibv_" in reason and "Cannot allocate memory" in reason and locked != resource.RLIM_INFINITY:
        return f"{reason} (`ulimit -l` allows {locked // 2**10:,} KiB of locked memory here, which InfiniBand needs)"
    return reason


def _process_limits_text() -> str:
    """Return what may bound the number of processes and threads here: the kernel tells not which of the two it was."""
    user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    bound = "" if user == resource.RLIM_INFINITY else f"`ulimit -u` allows {user} processes and threads, and "
    return f"{bound}a container or job may allow fewer: pids.max of its control group"


def _full_places(reason: str) -> list[str]:
    """Return which of the places that processes need besides the runs' folder has no room, each with what it is for.

    What did not fit into shared memory may be gone by now, with the process that asked for it: then its size is told.
    """
    places = []
    with suppress(OSError):  # where there is no room, Python may find no temporary folder either
        for folder, purpose in (("/dev/shm", ", where processes share memory and locks,"), (tempfile.gettempdir(), "")):
            disk = os.statvfs(folder)
            if disk.f_blocks and disk.f_bavail * disk.f_frsize < LITTLE_ROOM:
                places.append(f"{folder}{purpose} is full")
        if not places and IN_SHARED_MEMORY.search(reason):
            disk = os.statvfs("/dev/shm")
            size, free = (f"{blocks * disk.f_frsize / 2**20:,.0f} MiB" for blocks in (disk.f_blocks, disk.f_bavail))
            more = "a container gets more with `docker run --shm-size=1g`"
            places.append(
                f"/dev/shm, where processes share memory and locks, holds {size}, {free} of it free now; {more}"
            )
    return places
