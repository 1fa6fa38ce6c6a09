"""The host at one moment: cores, load, pressure, quota and memory, from the kernel's own files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from labkit.node.conditions import HostState

ROOT = Path("/")


def state(root: Path = ROOT) -> HostState:
    """Return the host's state; a field is None where this system does not tell. `root` holds proc and sys."""
    return HostState(
        cores=len(os.sched_getaffinity(0)),
        cpu_pressure_percent=cpu_pressure(root),
        cgroup_quota_cores=cgroup_quota(root),
        memory_available_gib=_available_gib(),
    )


def sample(root: Path = ROOT) -> dict[str, Any]:
    """Return the load of all cores since the last call in this thread, the pressure, and the memory that is left."""
    readings = {
        "cpu_percent": psutil.cpu_percent(None),
        "cpu_pressure_percent": cpu_pressure(root),
        "memory_available_gib": _available_gib(),
    }
    return {name: value for name, value in readings.items() if value is not None}


def cpu_pressure(root: Path = ROOT) -> float | None:
    """Return the share of the last 10 s, in percent, in which a runnable process waited for a core (PSI).

    None where the kernel does not count it (/proc/pressure is missing, or switched off).
    """
    for line in system_text(root / "proc/pressure/cpu", "").splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            return _number(dict(pair.partition("=")[::2] for pair in pairs).get("avg10"))
    return None


def cgroup_quota(root: Path = ROOT) -> float | None:
    """Return the cores that this process's control group may use.

    The tightest quota on the way to the top counts; None where there is none (cgroup v2: cpu.max; v1: cpu.cfs_*).
    """
    quotas = []
    for _, folder in cgroups("cpu", root):
        allowed, _, period = system_text(folder / "cpu.max", "").partition(" ")
        allowed = allowed or system_text(folder / "cpu.cfs_quota_us")
        period = period or system_text(folder / "cpu.cfs_period_us")
        quota_us, period_us = _number(allowed), _number(period)
        if quota_us and period_us and quota_us > 0:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def cgroups(controller: str, root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yield this process's control group of a controller and those above it, name and folder, in both versions.

    Inside a container the group's path may be the host's: the hierarchy's top is then the container's own group.
    """
    for line in system_text(root / "proc/self/cgroup", "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        inner = [folder for folder in (group, *group.parents) if folder.parts and ".." not in folder.parts]
        # Version 2 names no controllers, and is mounted at the top; version 1 by one name, or by all in a row.
        for top in {root / "sys/fs/cgroup" / name for name in (controllers, controllers and controller)}:
            yield from ((f"/{folder}", top / folder) for folder in inner)
            yield "/", top


def _available_gib() -> float:
    return round(psutil.virtual_memory().available / 2**30, 2)


def system_text(file: Path, missing: Any = None) -> Any:
    """Return what a file of /proc or /sys says, `missing` where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return missing


def numa_node(device: Path) -> int | None:
    """Return the NUMA node of a device's folder in /sys; the kernel writes -1 where it does not know, as in a VM."""
    text = system_text(device / "numa_node", "")
    return int(text) if text.isdecimal() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
