"""A control group for one answer, where one can be made: the kernel counts there what it holds for the answer, too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NAME = "labkit-answer-"
_RELEASE_SECONDS = 2.0  # after its last process has ended, a group is busy for a moment


@dataclass(frozen=True)
class MemoryGroup:
    """A folder of cgroup v2 or of v1's memory controller, as in cgroups(7)."""

    folder: Path

    @property
    def processes(self) -> str:
        """The file to which a process writes 0 to join."""
        return str(self.folder / "cgroup.procs")

    def was_full(self) -> bool:
        """Whether the kernel has ended a process for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (self.folder / name).read_text(encoding="utf-8").splitlines())
                return counts.get("oom_kill", "0") != "0"
        return False


@contextmanager
def memory_group(most_bytes: int) -> Iterator[MemoryGroup | None]:
    """Make a group that holds at most that memory; give None where none can be made, as in most containers."""
    group = next((group for place in _places() if (group := _made_in(place, most_bytes))), None)
    try:
        yield group
    finally:
        deadline = time.monotonic() + _RELEASE_SECONDS
        while group and not _removed(group.folder) and time.monotonic() < deadline:
            time.sleep(0.01)


def _places() -> Iterator[Path]:
    """Yield where groups may be made: in this process's own group of v1; of v2, in it or above it.

    A group of v2 that has processes has none below it that limits memory, and the one above is often delegated.
    """
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                yield _ROOT / "memory" / path.lstrip("/")
            elif not controllers and (_ROOT / "cgroup.controllers").exists():
                own = _ROOT / path.lstrip("/")
                yield from (place for place in (own, *own.parents) if place.is_relative_to(_ROOT))


def _made_in(place: Path, most_bytes: int) -> MemoryGroup | None:
    folder = place / f"{_NAME}{os.getpid()}-{time.monotonic_ns()}"
    try:
        for left in place.glob(f"{_NAME}*"):  # by a grader that was killed
            if not Path("/proc", left.name.split("-")[2]).exists():
                _removed(left)
        folder.mkdir()
    except OSError:
        return None
    for limit, swap in (("memory.max", "memory.swap.max"), ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")):
        with suppress(OSError):
            if (folder / limit).exists():
                (folder / limit).write_text(str(most_bytes), encoding="utf-8")
                with suppress(OSError):  # a kernel without swap accounting
                    (folder / swap).write_text("0" if limit == "memory.max" else str(most_bytes), encoding="utf-8")
                with suppress(OSError):
                    (folder / "memory.oom.group").write_text("1", encoding="utf-8")
                return MemoryGroup(folder)
    _removed(folder)
    return None


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
