"""The kernel's end of what starts workers; beside each kernel an agent process, started before its first launch."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from labkit import node
from labkit.engine.files import private_folder
from labkit.engine.messages import LaunchOutcome, Leave, Request
from labkit.engine.needs import require_needs
from labkit.engine.processes import BLANK_MARK, MARK_VARIABLE, is_stopped
from labkit.engine.run import Run
from labkit.engine.system_limits import with_limit
from labkit.repository import REPOSITORY

# Left by another launcher in the kernel's environment, these would misplace our workers.
FOREIGN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
FOREIGN_PREFIXES = ("SLURM_", "TORCHELASTIC_", "PET_", "OMPI_", "PMI_", "ROLE_", "GROUP_", "LABKIT_")
OWN_VARIABLES = ("LABKIT_RUNS", "LABKIT_ANSWERS", "LABKIT_NCCL_TESTS")

# Python and its libraries read these while they are loaded, which the agent does once.
READ_EARLY = (
    "HF_",
    "KMP_",
    "LD_",
    "MKL_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
)

LEAVE_SECONDS = 5.0


def kernel_environment() -> dict[str, str]:
    """Return the kernel's environment without other launchers' variables; the workers import this labkit."""
    foreign = {name for name in os.environ if name in FOREIGN_VARIABLES or name.startswith(FOREIGN_PREFIXES)} - {
        *OWN_VARIABLES
    }
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [str(REPOSITORY), *(os.path.join(_current_folder(), folder) for folder in named)]
    # Triton decides while it is loaded whether it compiles kernels or interprets them, and a CPU can only interpret.
    interpreted = {} if node.here().has_gpus else {"TRITON_INTERPRET": kept.get("TRITON_INTERPRET", "1")}
    return kept | interpreted | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def import_path() -> list[str]:
    """Return the folders that this process imports from, each as an absolute path."""
    return [os.path.normpath(os.path.join(_current_folder(), folder)) for folder in sys.path if isinstance(folder, str)]


def _current_folder() -> str:
    return os.readlink("/proc/self/cwd")  # known even where the folder was removed


class Session:
    """What starts a launch's workers: of this one nothing can be asked, as where a user starts them by hand."""

    launches = 0  # that use it
    pid = 0  # of its process

    def outcome(self, run: Run, launch: int) -> LaunchOutcome | None:
        """How the launch ended; None while it goes on."""

    def send_request(self, request: Request) -> None:
        """Ask for something."""

    def alive(self) -> bool:
        return True

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it (SIGSTOP): it answers once it is continued."""
        return False

    def folder_lost(self) -> str:
        """The folder in which its ranks meet, where that was removed; "" where they meet elsewhere, or can."""
        return ""

    def resume(self) -> None:
        """Continue what was stopped: what it has to end, ends."""

    def leave(self) -> None:
        """Let it end: at once where nothing runs, and with it every worker that it has."""

    def how_it_ended(self) -> str:
        """How its process ended and, where it was not killed, the reason."""
        return "its words are in the terminals of its machines"

    def last_error(self) -> str:
        """The last line of its log that tells an error; "" where there is none."""
        return ""

    def log_tail(self) -> str:
        """The end of its log."""
        return ""


class ProcessSession(Session):
    """A process that starts workers when it is asked to, and tells how each launch ended.

    One beside the kernel (`AgentSession`) starts those of this node; another one may have them started elsewhere.
    """

    process: subprocess.Popen[bytes]

    def __init__(self, modules: tuple[str, ...]):
        self.modules, self.fingerprint = modules, agent_fingerprint()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process; it has no name: nothing is left)

    def _start(self, command: Sequence[str], environment: dict[str, str], **options: Any) -> None:
        """Start the process, which reads requests from its stdin; where it cannot be started, nothing is left."""
        try:
            self.process = subprocess.Popen[bytes](
                command,
                env=environment | {MARK_VARIABLE: BLANK_MARK},
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # an interrupt in a terminal reaches the kernel alone, which ends the run
                **options,
            )
        except OSError:
            self._clear()
            raise
        assert self.process.stdin is not None, "it is a pipe"
        self.pid = self.process.pid
        self._requests = self.process.stdin

    def send_request(self, request: Request) -> None:
        """Ask for something. A process that is gone is noticed by whoever waits for the outcome."""
        with suppress(BrokenPipeError, ValueError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def serves(self, *modules: str) -> bool:
        """Whether it lives, has its folder, knows the modules (it does the engine's), and is up to date."""
        knows_modules = all(module in self.modules or module.startswith("labkit.engine.") for module in modules)
        return self.alive() and knows_modules and self.fingerprint == agent_fingerprint() and self.has_its_folder()

    def has_its_folder(self) -> bool:
        """Whether it can still work where it works."""
        return True

    def alive(self) -> bool:
        return self.process.poll() is None

    def is_stopped(self) -> bool:
        return self.alive() and is_stopped(psutil.Process(self.pid))

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self.resume()
        self.send_request(Leave(kind="leave"))  # a process forked from this one may hold its stdin open
        with suppress(OSError):
            self._requests.close()
        try:
            self.process.wait(timeout=LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._clear()

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _clear(self) -> None:
        """Remove what the process has used; more than once changes nothing."""

    def how_it_ended(self) -> str:
        words = re.sub(r"^.*Warning: .*\n(?:  .*\n?)?", "", self.log_tail(), flags=re.M)  # with the line that warns
        status, last = self.process.poll(), words.strip().rpartition("\n")[2]
        reason = (self.last_error() or last) if status is not None and status >= 0 else ""
        return f"it ended with status {status}" + (reason and f": {reason}")

    def last_error(self) -> str:
        """The last line of its log that tells an error, of a system's limit if one does; "" where there is none.

        What fails because a limit was met, such as a file in a folder that is gone by then, may come after it.
        """
        errors = re.findall(r"^(?:[\w.]*(?:Error|Exception)\b.*|.*: Resource temporarily.*)$", self.log_tail(), re.M)
        return next((error for error in reversed(errors) if with_limit(error) != error), errors[-1] if errors else "")

    def log_tail(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")


class AgentSession(ProcessSession):
    """An agent process that holds torch and what the workers' modules import, so that workers start in a second.

    `with AgentSession.borrow(module) as session` gives the kernel's own. It is replaced when it is gone, when the
    engine's code changed on disk, or when a module is wanted that it does not know; a replaced one ends with its last
    launch. Who launches workers of several modules one after the other names all of them first: one agent then serves
    all.
    """

    expected: tuple[str, ...] = ()  # modules that every new agent knows, so that launches of them follow each other

    _lock = threading.RLock()
    _current: Self | None = None

    def __init__(self, modules: tuple[str, ...]):
        super().__init__(modules)
        require_needs()
        self._folder, self._locked = private_folder("agent")  # for the agent alone
        self._sockets: set[Path] = set()  # of the forkserver, below that folder
        self._outcomes, self._half, self._reading = {}, b"", threading.Lock()
        read_end, write_end = os.pipe()  # no file: a disk may be full, a folder removed
        self._outcomes_pipe = open(read_end, "rb", buffering=0)  # noqa: SIM115  (as long as the agent)
        os.set_blocking(read_end, False)
        preload = json.dumps({"modules": modules, "path": import_path()})
        try:
            self._start(
                # -P: the current folder may hold a torch.py, which is for a worker to import at most.
                [sys.executable, "-P", "-m", "labkit.engine.agent", str(os.getpid()), self._folder, str(write_end)],
                kernel_environment() | {"LABKIT_PRELOAD": preload},
                pass_fds=(write_end, self._locked),
                cwd="/",  # the kernel's folder may have been removed; each worker goes there by itself
            )
        finally:
            os.close(write_end)

    @classmethod
    @contextmanager
    def borrow(cls, *modules: str) -> Iterator[Self]:
        """Lend the session of this process, which knows these modules, for one launch, or for launches in turn."""
        with cls._lock:
            session = cls._serving_session(*modules)
            session.launches += 1
        try:
            yield session
        finally:
            with cls._lock:
                session.has_its_folder()
                session.launches -= 1
                retired = session is not cls._current and not session.launches
            if retired:
                session.leave()

    @classmethod
    def warm(cls, *modules: str) -> None:
        """Start the agent, unless LABKIT_WARM=0: it imports torch while the page before the first launch is read.

        It holds no GPU memory. What cannot be started is told by the launch.
        """
        if modules and os.environ.get("LABKIT_WARM") != "0":
            with cls._lock, suppress(OSError):
                cls._serving_session(*modules)

    @classmethod
    def renew(cls, *modules: str) -> None:
        """End the agent of this process and start one anew, as a kernel's restart and its set-up cell do."""
        with cls._lock:
            _leave()
            _keep(None)
        cls.warm(*modules)

    @classmethod
    def _serving_session(cls, *modules: str) -> Self:
        """Return the session of this process, a new one where it does not serve these modules."""
        last = cls._current
        if last is not None and last.serves(*modules):
            return last
        earlier = last.modules if last is not None and last.alive() else ()
        session = cls(tuple(dict.fromkeys((*earlier, *cls.expected, *modules))))
        _keep(session)
        if last is not None and not last.launches:
            last.leave()
        return session

    def has_its_folder(self) -> bool:
        """Whether a cleaner of temporary files has left the agent's folder, and each socket that was seen in it."""
        try:
            self._sockets |= {file for file in Path(self._folder).glob("*/*") if file.is_socket()}
            there = os.stat(self._folder)
        except OSError:
            return False
        same = self._locked is not None and os.path.samestat(there, os.fstat(self._locked))
        return same and all(file.exists() for file in self._sockets)

    def folder_lost(self) -> str:
        if os.path.isdir(self._folder):
            return ""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
            return ""  # it has removed its folder by itself, as it left
        return self._folder

    def send_request(self, request: Request) -> None:
        """Send the agent a request; a launch forgets the outcome of an earlier run of this name."""
        if request["kind"] == "start":  # that run may have been removed within the same second
            self._outcomes.pop((request["environment"][MARK_VARIABLE], request["launch"]), None)
        super().send_request(request)

    def outcome(self, run: Run, launch: int) -> LaunchOutcome | None:
        with self._reading, suppress(ValueError):  # once the agent has left, the pipe is closed
            while more := self._outcomes_pipe.read(2**16):
                *lines, self._half = (self._half + more).split(b"\n")
                for outcome in map(json.loads, lines):
                    self._outcomes[outcome["run"], outcome["launch"]] = outcome
        return self._outcomes.get((run.mark, launch))

    def _clear(self) -> None:
        """Remove the agent's folder, and close what led to it; more than once changes nothing."""
        with self._reading:
            self._outcomes_pipe.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._locked is not None:
                os.close(self._locked)
            self._locked = None


def agent_fingerprint() -> tuple:
    """Return the state of what the agent holds: the engine's newest change, and what loading depends on.

    A lab's own code is read anew by every worker.
    """
    files = [*Path(REPOSITORY, "labkit", "engine").glob("*.py"), *Path(REPOSITORY, "labkit", "node").rglob("*.py")]
    early = {name: value for name, value in kernel_environment().items() if name.startswith(READ_EARLY)}
    return len(files), max(file.stat().st_mtime_ns for file in files), early


def _forget() -> None:
    """A process forked from a kernel has no session yet: that of its parent is not its own."""
    AgentSession._lock = threading.RLock()
    _keep(None)


def _keep(session: AgentSession | None) -> None:
    """Hold the session where this module, reloaded, finds it: a second agent would hold as much memory again."""
    AgentSession._current = sys.__dict__["labkit_session"] = session


@atexit.register
def _leave() -> None:
    if AgentSession._current is not None:
        AgentSession._current.leave()


os.register_at_fork(after_in_child=_forget)
_keep(sys.__dict__.get("labkit_session"))
