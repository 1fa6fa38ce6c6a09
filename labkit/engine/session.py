"""The host's end of the agent process: one beside each kernel, started with the first launch, ended with the kernel."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

from labkit.engine.run import REPOSITORY

# Left by another launcher in the kernel's environment, these would misplace our workers.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
FOREIGN_PREFIXES = ("SLURM_", "TORCHELASTIC_", "PET_", "OMPI_", "PMI_", "ROLE_", "GROUP_", "LABKIT_")
OURS = ("LABKIT_RUNS", "LABKIT_ANSWERS")

MARK = "LABKIT_RUN"
UNMARKED = "-" * 32  # as long as a run's mark, which a worker writes over it


def environment() -> dict[str, str]:
    """Give the kernel's environment without other launchers' variables; the workers import this labkit."""
    kept = {k: v for k, v in os.environ.items() if k in OURS or k not in FOREIGN and not k.startswith(FOREIGN_PREFIXES)}
    paths = [str(REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


class Session:
    """An agent process that holds torch and the workers' modules, so that fresh workers start in a second.

    `Session.of(module)` gives the kernel's own. It is replaced when code changed on disk, when a module is wanted that
    it does not hold, or when it is gone.
    """

    _lock = threading.Lock()
    _current: Session | None = None

    def __init__(self, modules: tuple[str, ...]):
        self.modules, self.kernel, self.code = modules, os.getpid(), _code(modules)
        self._log = tempfile.TemporaryFile()  # has no name, so nothing is left of it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labkit.engine.agent", str(os.getpid())],
            env=environment() | {MARK: UNMARKED, "LABKIT_PRELOAD": ",".join(modules), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # an interrupt typed in a terminal reaches the kernel alone, which ends the run
        )

    @classmethod
    def of(cls, module: str) -> Self:
        """Give the session of this process, which holds `module`; a new one where the last does not serve any more."""
        with cls._lock:
            last = cls._current
            modules = tuple(dict.fromkeys((*(last.modules if last else ()), module)))
            if last is None or last.kernel != os.getpid() or not last.serves(module):
                if last is not None and last.kernel == os.getpid():
                    last.leave()
                cls._current = cls(modules)
            return cls._current

    def serves(self, module: str) -> bool:
        """Whether the agent lives, holds the module, and holds it as it is on disk."""
        return self.alive() and module in self.modules and self.code == _code(self.modules)

    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, **request: Any) -> None:
        """Have the agent start a launch; one that is gone is noticed by whoever waits for the outcome."""
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def leave(self) -> None:
        """Let the agent end: at once where nothing runs, and with it every worker that it has."""
        try:
            self.process.stdin.close()
            self.process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._log.close()

    def said(self) -> str:
        """The end of what the agent wrote to its log."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")


def _code(modules: tuple[str, ...]) -> tuple:
    """Tell one state of the code from another: the newest change in labkit and in the modules' own files."""
    files = [*Path(REPOSITORY, "labkit").rglob("*.py")]
    for module in modules:
        if not module.startswith("labkit."):
            spec = importlib.util.find_spec(module)
            files += [Path(spec.origin)] if spec and spec.origin else []
    return len(files), max(file.stat().st_mtime_ns for file in files), os.environ.get("PYTHONPATH")


@atexit.register
def _leave() -> None:
    session = Session._current
    if session is not None and session.kernel == os.getpid():
        session.leave()
