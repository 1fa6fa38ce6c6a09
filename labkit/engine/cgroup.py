"""How many processes and threads the control group of this process allows (cgroups(7)): a job's or a container's."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def most_processes(root: Path = Path("/")) -> tuple[str, int] | None:
    """Return the name of the group, of those above this process, that allows the fewest, and how many; or None.

    A container may see its own group at the top of the mount, whatever its name: the top is always looked at.
    """
    limits = {}
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers and "pids" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / controllers  # version 2 names no controllers, and is mounted at the top
            folder = top / name.strip("/")
            for group in (folder, *folder.parents[: len(folder.parts) - len(top.parts)]):
                with suppress(OSError, ValueError):  # "max", or no such group in this container
                    limits[f"/{group.relative_to(top)}".replace("/.", "/")] = int((group / "pids.max").read_text())
    return min(limits.items(), key=lambda limit: limit[1]) if limits else None
