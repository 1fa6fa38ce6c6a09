"""Runs Python beside the grader without the grader's rights: its files, its network, its other processes.

The process has a file system, a process table and a network of its own: it sees Python and its packages read-only, an
empty /tmp, and nothing else. Started by root, it runs as a user that nobody is. It needs root or user namespaces; where
a trial answer gets out, `run` raises `Unconfined`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import labkit
from labkit.course.grading import confined_entry, confinement_probe, process_tree
from labkit.course.grading.memory_group import memory_group
from labkit.repository import REPOSITORY

MIB = 2**20
MOST_PROCESSES = 64  # of one answer, its threads among them
_SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
_OF_PYTHON = ("bin", "lib", "lib64", "pyvenv.cfg")  # in the folder of an installed Python or a virtual environment
_TRY_SECONDS = 20.0
_LOOK_SECONDS = 0.05  # from one look at the memory to the next: a core fills about 100 MiB in this time
_NAMES_OF_USERS = re.compile(r"^\s*0\s+\d+\s+(\d+)$", re.MULTILINE)  # in uid_map: how many there are from 0 on


class Unconfined(RuntimeError):
    """Nothing here keeps an answer from the grader's files; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Limits:
    """What a confined process may take: seconds from start to end, MiB of memory, MiB of output.

    The memory is that of each process that it starts, and of all of them together. With `loopback`, its processes may
    connect to each other.
    """

    seconds: float = 20.0
    memory_mib: int = 4096
    output_mib: int = 16
    loopback: bool = False

    def resources(self) -> dict[str, int]:
        """Return the limits by their names in `resource`. That of processes counts all of a user, not of an answer."""
        return {
            "RLIMIT_AS": self.memory_mib * MIB,
            "RLIMIT_CPU": int(self.seconds) + 2,
            "RLIMIT_FSIZE": self.output_mib * MIB,
            "RLIMIT_NPROC": MOST_PROCESSES,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True)
class ConfinedResult:
    """How a confined process ended: what it wrote as its results, what it printed, its status (None: it was ended).

    `took_more`: what its processes took more of, together, than they may, as "than 512 MiB of memory". `starved`: its
    time was over, and it had waited for a core for much of it.
    """

    results: str
    printed: str
    status: int | None
    took_more: str = ""
    starved: bool = False


class _Company:
    """Who runs: several answers side by side, or one alone."""

    def __init__(self) -> None:
        self._door, self._left, self._running = threading.Lock(), threading.Condition(), 0

    @contextmanager
    def several(self) -> Iterator[None]:
        with self._door, self._left:
            self._running += 1
        try:
            yield
        finally:
            with self._left:
                self._running -= 1
                self._left.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._door, self._left:
            self._left.wait_for(lambda: not self._running)
            yield


_COMPANY = _Company()


def run(files: dict[str, str], script: str, limits: Limits) -> ConfinedResult:
    """Run one of `files`, `script`, in a confined process; its argument is the descriptor that takes its results.

    Where it did not end because others took the cores, it is run once more, alone. Raises Unconfined where nothing here
    confines it.
    """
    require_confinement()
    with _COMPANY.several():
        result = _run(files, script, limits)
    if result.starved:
        with _COMPANY.alone():
            result = _run(files, script, limits)
    return result


def _run(files: dict[str, str], script: str, limits: Limits) -> ConfinedResult:
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as results,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as told,  # by what makes the walls
        memory_group(limits.memory_mib * MIB) as group,
    ):
        request = {
            "root": folder,
            "paths": visible_paths(),
            "files": files,
            "limits": limits.resources(),
            "user": _own_user() if _is_root() else None,
            "group": group and group.processes,
            "loopback": limits.loopback,
            "printed": printed.fileno(),
            # Without a buffer (-u), what it has printed is there when it has to be ended.
            "command": [sys.executable, "-IBu", f"/{confined_entry.ANSWER}/{script}", str(results.fileno())],
        }
        with tempfile.TemporaryFile() as asked:  # a pipe would hold 64 KiB, and whoever fills it wait for its reader
            asked.write(json.dumps(request).encode())
            asked.seek(0)
            process = subprocess.Popen(
                [*_entrance(), sys.executable, "-I", "-B", confined_entry.__file__],
                stdin=asked,
                stdout=told,
                stderr=told,
                pass_fds=[results.fileno(), printed.fileno()],
                env={
                    "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                    "LANG": "C.UTF-8",
                    "HOME": "/tmp",
                    "OMP_NUM_THREADS": "1",
                    "GLOO_SOCKET_IFNAME": "lo",
                },
                cwd=folder,
                start_new_session=True,
            )
        try:
            status, took_more, starved = _wait(process, limits)
        finally:
            process_tree.end(process)
        if group and group.was_full():
            took_more = f"than {limits.memory_mib} MiB of memory"
        # What makes the walls has words of its own for a process that it sees killed.
        words = _decoded_text(printed, limits) or ("" if status is None else _decoded_text(told, limits))
        return ConfinedResult(_decoded_text(results, limits), words, status, took_more, starved)


def _wait(process: subprocess.Popen, limits: Limits) -> tuple[int | None, str, bool]:
    """Return the status, None where it has to be ended, what was taken too much of, and whether it was starved."""
    deadline, most_bytes = time.monotonic() + limits.seconds, limits.memory_mib * MIB
    while time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_LOOK_SECONDS), "", False
        pids = process_tree.tree(process.pid)
        queued = process_tree.queued_bytes(process.pid) if limits.loopback else 0
        if queued + process_tree.memory_bytes(pids, most_bytes) > most_bytes:
            return None, f"than {limits.memory_mib} MiB of memory", False
        if len(pids) > MOST_PROCESSES + 2:  # unshare and its child are not the answer's
            return None, f"than {MOST_PROCESSES} processes", False
    ran, waited = process_tree.times(process_tree.tree(process.pid))
    return None, "", ran < limits.seconds / 2 and waited > limits.seconds / 4


@functools.cache
def require_confinement() -> None:
    """Raise Unconfined unless a trial shows that an answer stays inside."""
    if reason := confinement_fault():
        raise Unconfined(
            f"no answer was run, since nothing here confines students' code ({reason}). Install util-linux, and grade "
            "as root or allow user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`); a container needs the right to mount."
        )


def confinement_fault() -> str:
    """Return why answers cannot be confined here, "" where they can: an answer tries to get out.

    It tries to read the checkout and a file that is the grader's alone, to write beside Python's packages, into the
    checkout and into the grader's home, to reach a socket of the grader, and to find a right that it has kept.
    """
    mark = f"labkit-probe-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory() as private, socket.create_server(("127.0.0.1", 0)) as server:
        secret = Path(private, "secret")
        secret.touch(mode=0o600)
        places = [Path(place, mark) for place in (private, REPOSITORY, os.path.expanduser("~"), *_packages())]
        request = {
            "read": [str(secret), labkit.__file__],
            "write": [str(place) for place in places],
            "port": server.getsockname()[1],
            "filtered": os.uname().machine in confined_entry.MACHINES,
        }
        script = {
            "probe.py": Path(confinement_probe.__file__).read_text(encoding="utf-8"),
            "request.json": json.dumps(request),
        }
        try:
            result = _run(script, "probe.py", Limits(_TRY_SECONDS))
            reached = [f"write {place}" for place in places if place.exists()]
        except OSError as error:
            return str(error)
        finally:
            for place in places:
                with suppress(OSError):
                    place.unlink(missing_ok=True)
    try:
        reached += json.loads(result.results)
    except ValueError:
        last_line = result.printed.strip().rpartition("\n")[2] or f"its process ended with status {result.status}"
        return f"{last_line}: {sys.executable}" if last_line.startswith("PermissionError") else last_line
    return f"an answer could {', '.join(reached)}" if reached else ""


def side_by_side() -> bool:
    """Whether answers may run at the same time: the processes that one starts are not counted as another's.

    Root's answers have a user each. In a namespace of users, Linux counts by namespace from 5.14 on.
    """
    release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return _is_root() or release >= (5, 14)


def visible_paths() -> list[list[str]]:
    """Return what a file system of its own shows: Python and its packages; the checkout, its reference code, hidden.

    Each is [path, "show"] or [path, "hide"], a folder before what it holds. What is shown has no link on its way: the
    links that lead to it are shown, too.
    """
    of_python = [Path(place, name) for place in {sys.base_prefix, sys.prefix} for name in _OF_PYTHON]
    paths: set[str] = set()
    for path in (*_SYSTEM_PATHS, *of_python, *_packages(), sys.executable):
        if os.path.exists(path):
            paths.update(_links_on_way(str(path)))
    lessons = importlib.util.find_spec("lessons")
    hidden = {os.path.dirname(os.path.realpath(file)) for file in (labkit.__file__, lessons and lessons.origin) if file}
    hidden |= {
        os.path.realpath(tempfile.gettempdir()),
        *([str(REPOSITORY)] if (REPOSITORY / "notebooks").is_dir() else []),
    }
    marked = [[path, "show"] for path in paths] + [[path, "hide"] for path in hidden]
    return sorted(marked, key=lambda pair: (pair[0].count("/"), pair))


def _links_on_way(path: str) -> list[str]:
    """Return the links on the way to an absolute path that exists, and where they lead in the end."""
    links, place, parts_left = [], "/", path.split("/")
    while parts_left:
        if (name := parts_left.pop(0)) in ("", "."):
            continue
        if name == "..":
            place = os.path.dirname(place)
        elif os.path.islink(step := os.path.join(place, name)):
            links.append(step)
            target = os.readlink(step)
            place, parts_left = "/" if target.startswith("/") else place, [*target.split("/"), *parts_left]
        else:
            place = step
    return [*links, place]


def _packages() -> list[str]:
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _own_user() -> int:
    """Return a user for an answer alone, of those that nobody is: by the thread that waits for it, and for no other."""
    number = threading.get_native_id()
    with suppress(OSError):
        numbers = _NAMES_OF_USERS.findall(Path("/proc/self/uid_map").read_text(encoding="utf-8"))
        if numbers and int(numbers[0]) < 2**31:  # a container has few of them
            half = int(numbers[0]) // 2
            return half + number % (half - 2)  # the last two are nobody, and none
    return 0x70000000 + number  # up to here systemd gives numbers to containers, and Linux has 2**22 processes at most


def _entrance() -> list[str]:
    """Return the command that makes the namespaces; it ends with the thread that starts it, however that ends.

    With it ends its child, the first process there, and with that all others: none of them is the answer's to command.
    """
    if (unshare := shutil.which("unshare")) is None or (setpriv := shutil.which("setpriv")) is None:
        raise FileNotFoundError("unshare or setpriv, of util-linux, is not installed")
    kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", *([] if _is_root() else ["--user", "--map-root-user"])]
    namespaces = [unshare, *kinds, "--fork", "--kill-child=SIGKILL", "--propagation=private", "--"]
    return [setpriv, "--pdeathsig", "KILL", *namespaces]


def _is_root() -> bool:
    return os.geteuid() == 0


def _decoded_text(file, limits: Limits) -> str:
    file.seek(0)
    return file.read(limits.output_mib * MIB).decode("utf-8", "replace")
