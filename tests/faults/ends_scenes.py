"""What the tests of ends share: kernels in a process of their own, the processes below them, and waiting for both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import ends_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
import psutil
from failing_launches import HERE

from labkit.engine.processes import is_alive, is_caretaker
from labkit.engine.run import Run
from labkit.repository import REPOSITORY

PATIENCE_S = 30.0  # for processes to end; test_guards_matter.py, where they do not, waits less


def soon(found: Callable, seconds: float = 0.0):
    """Wait until `found()` gives something true, and give that; PATIENCE_S at most where no seconds are given."""
    deadline = time.monotonic() + (seconds or PATIENCE_S)
    while not (result := found()):
        assert time.monotonic() < deadline, f"nothing in {seconds or PATIENCE_S} s"
        time.sleep(0.05)
    return result


def copy_of_labkit(folder: Path) -> Path:
    """Return a folder to import labkit from whose code may be changed."""
    half_written = shutil.ignore_patterns("*.pyc.*")  # its bytecode, which other tests may write, is valid in the copy
    shutil.copytree(REPOSITORY / "labkit", folder / "copy" / "labkit", ignore=half_written)
    return folder / "copy"


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that run, told by pid and start time."""
    return [process for process in processes if process.is_running() and is_alive(process)]


class Family:
    """All processes below a kernel that keeps its runs in this folder, as far as they were seen while they lived."""

    def __init__(self, kernel: int, runs: Path):
        self.kernel, self.runs, self.seen = kernel, str(runs), set()

    def look(self) -> list[psutil.Process]:
        """Return those that live now."""
        family, children = [], defaultdict(list)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                children[process.ppid()].append(process)
                if process.environ().get("LABKIT_RUNS") == self.runs and process.pid != self.kernel:
                    family.append(process)
        for process in family:  # which grows by those below
            family += children.pop(process.pid, [])
        self.seen |= {*family}
        return living(self.seen - {psutil.Process()})

    def end(self) -> None:
        """Kill them; those that free shared memory when its users are gone end by themselves."""
        for process in self.look():
            with suppress(psutil.Error):
                if not is_caretaker(process):
                    process.kill()


class Kernel:
    """A process that launches these faults; leaving its context ends it, and all below it that a test has left."""

    def __init__(self, folder: Path, *faults: str, code: str = "", **environment: str):
        self.runs = folder / "runs"
        command = [sys.executable, *(["-c", code] if code else [str(HERE / "ends_kernel.py"), *faults])]
        environment = os.environ | {"LABKIT_RUNS": str(self.runs)} | environment
        self.process = subprocess.Popen(
            command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self.process.pid
        self.family = Family(self.pid, self.runs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.family.end()
        self.process.kill()
        self.process.communicate()

    def helper(self, name: str) -> psutil.Process:
        """The agent or the forkserver below it: the oldest process of that command or name."""
        return min(self.helpers(name), key=lambda process: process.create_time())

    def helpers(self, name: str) -> list[psutil.Process]:
        """The processes below it of that command or name; what is forked has its parent's command."""
        found = []
        for process in self.family.look():
            with suppress(psutil.Error):  # it has ended since
                found += [process] if any(name in word for word in (process.name(), *process.cmdline())) else []
        return found

    def run(self, rows: int = 0) -> Run:
        """Wait until workers live and the run has so many rows; all processes below are known then."""
        run = soon(lambda: the_run(self.runs, rows), seconds=60)
        self.family.look()
        return run

    def tells(self, seconds: float = 45.0) -> dict:
        """How its launch ended; the kernel itself ends well."""
        out, _ = self.process.communicate(timeout=seconds)
        return json.loads(out)


def interrupt_again(run: Run, interrupt: Callable[[], None], times: int) -> None:
    """Interrupt a launch of deaf workers: once, then, while the launcher waits for the workers to end, the other times.

    It waits for GRACE_SECONDS, since they ignore what it sends them. A signal is heard before the next one comes.
    """
    interrupt()
    soon(Path(run.folder, "heard").exists)
    for _ in range(times - 1):
        interrupt()
        time.sleep(0.1)


def the_run(runs: Path, rows: int = 0) -> Run | None:
    """The run in the folder that has workers and so many rows."""
    for file in runs.glob("*/node.json"):
        run = Run(file.parent)
        if any(run.events_file(rank).exists() for rank in range(2)) and len(run.rows) >= rows:
            return run
    return None
