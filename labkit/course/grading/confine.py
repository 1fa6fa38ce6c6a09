"""Runs Python beside the grader without the grader's rights: its files, its network, its other processes.

Where the kernel allows it (as root, or with user namespaces), the process has a file system, a process table and a
network of its own: it sees Python and its packages read-only, an empty /tmp, and nothing else. Elsewhere root's process
runs as nobody, and another user's has limits alone. `confinement` says which of the three it is here.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import labkit
from labkit.course.grading import enter, processes
from labkit.repository import REPOSITORY

NAMESPACES, NOBODY, LIMITS = "namespaces", "nobody", "limits"
WORDS = {
    NAMESPACES: "Each answer ran in a file system, a process table and a network of its own",
    NOBODY: "Each answer ran as nobody; it could read what everyone may read, and reach the network",
    LIMITS: "Each answer ran with the grader's own rights, under limits of time and memory only",
}
NOBODY_ID = 65534
MIB = 2**20
_FIRST = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
_TRY_SECONDS = 20.0
_LOOK_SECONDS = 0.05  # from one look at the memory to the next: a core fills about 100 MiB in this time


@dataclass(frozen=True)
class Limits:
    """What a confined process may take: seconds from start to end, MiB of memory, MiB of output.

    The memory is that of each process that it starts, and of all of them together.
    """

    seconds: float = 20.0
    memory_mib: int = 4096
    output_mib: int = 16

    def resources(self, processes: int) -> dict[str, int]:
        """Return the limits by their names in `resource`."""
        return {
            "RLIMIT_AS": self.memory_mib * MIB,
            "RLIMIT_CPU": int(self.seconds) + 2,
            "RLIMIT_FSIZE": self.output_mib * MIB,
            "RLIMIT_NPROC": processes,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True)
class Ended:
    """How a confined process ended: what it wrote as its results, what it printed, its status (None: out of time).

    `out_of_memory`: it was ended because its processes took more together than they may.
    """

    results: str
    printed: str
    status: int | None
    out_of_memory: bool = False


def run(files: dict[str, str], script: str, limits: Limits, kind: str = "") -> Ended:
    """Run one of `files`, `script`, in a confined process; its argument is the descriptor that takes its results.

    `kind` is a confinement of this module; by default the best that this machine has.
    """
    kind = kind or confinement()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as results, tempfile.TemporaryFile() as told:
        os.chmod(folder, 0o755)
        answer = f"/{enter.ANSWER}" if kind == NAMESPACES else f"{folder}/{enter.ANSWER}"
        command = [sys.executable, "-I", "-B", f"{answer}/{script}", str(results.fileno())]
        request = {
            "root": folder if kind == NAMESPACES else "",
            "paths": paths(),
            "files": files,
            "limits": limits.resources(512 if _is_root() else 4096),
            "user": NOBODY_ID if _is_root() and kind != LIMITS else None,
            "command": command,
        }
        process = subprocess.Popen(
            [*_entrance(kind), sys.executable, "-I", "-B", enter.__file__],
            stdin=subprocess.PIPE,
            stdout=told,
            stderr=told,
            pass_fds=[results.fileno()],
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": "/tmp", "OMP_NUM_THREADS": "1"},
            cwd=folder,
            start_new_session=True,
        )
        try:
            status, out_of_memory = _wait(process, json.dumps(request).encode(), limits)
        finally:
            processes.end(process)
        return Ended(_text(results, limits), _text(told, limits), status, out_of_memory)


def _wait(process: subprocess.Popen, request: bytes, limits: Limits) -> tuple[int | None, bool]:
    """Hand over the request and wait; return the status, None after the limits, and whether memory was the reason."""
    deadline, most_bytes, given = time.monotonic() + limits.seconds, limits.memory_mib * MIB, request
    while time.monotonic() < deadline:
        try:
            process.communicate(given, timeout=_LOOK_SECONDS)
            return process.returncode, False
        except subprocess.TimeoutExpired:
            given = None
        if processes.memory_bytes(process.pid, most_bytes) > most_bytes:
            return None, True
    return None, False


@functools.cache
def confinement() -> str:
    """Return the best confinement that works here."""
    for kind in (NAMESPACES, *([NOBODY] if _is_root() else [])):
        probe = {"probe.py": "import os, sys\nos.write(int(sys.argv[1]), b'in')\n"}
        with suppress(OSError):
            if run(probe, "probe.py", Limits(_TRY_SECONDS), kind).results == "in":
                return kind
    return LIMITS


def paths() -> list[list[str]]:
    """Return what a file system of its own shows: Python and its packages; the checkout, its reference code, hidden."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    shown = {*_FIRST, os.path.realpath(sys.base_prefix), os.path.abspath(sys.prefix), *packages}
    code = Path(labkit.__file__).resolve().parent
    hidden = {str(code), *([str(REPOSITORY)] if (REPOSITORY / "notebooks").is_dir() else [])}
    marked = [[path, "show"] for path in shown if os.path.exists(path)] + [[path, "hide"] for path in hidden]
    return sorted(marked, key=lambda pair: (pair[0].count("/"), pair[0]))


def _entrance(kind: str) -> list[str]:
    if kind != NAMESPACES:
        return []
    if (unshare := shutil.which("unshare")) is None:
        raise FileNotFoundError("unshare, of util-linux, is not installed")
    own = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL", "--propagation=private"]
    return [unshare, *([] if _is_root() else ["--user", "--map-root-user"]), *own, "--"]


def _is_root() -> bool:
    return os.geteuid() == 0


def _text(file, limits: Limits) -> str:
    file.seek(0)
    return file.read(limits.output_mib * MIB).decode("utf-8", "replace")
