"""CPython's forkserver, as the agent and its workers need it: the only file that uses private names of CPython's.

Under a version of Python that is not in SUPPORTED, the agent spawns its workers instead, through public names alone.
Each spawned worker imports torch anew, which takes seconds. Shared memory that a spawned worker leaves behind is freed
when the agent ends, not when the run ends.
"""

from __future__ import annotations

import atexit
import errno
import os
import secrets
import signal
import socket
import sys
import threading
import traceback
import warnings
from multiprocessing import connection, forkserver, popen_forkserver, process, reduction, resource_tracker
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil

from labkit.engine.processes import HELD_SIGNALS, end_with, set_name

SUPPORTED = ((3, 11), (3, 12))  # the tests pass on 3.11; the runs in data/recorded were measured on 3.12
LONG_FOLDER = 80  # bytes: what is left is enough for the name of a socket

_FORKSERVER: Any = getattr(forkserver, "_forkserver", None)
_TRACKER: Any = getattr(resource_tracker, "_resource_tracker", None)
_HELPERS: set[int] = set()  # where workers are spawned: what this process had started before the first worker


def is_supported() -> bool:
    """Whether the private names are known to work under this version of Python."""
    return sys.version_info[:2] in SUPPORTED


def start(folder: str) -> list[int]:
    """Fork the forkserver, with all that this process has imported; return a descriptor of it, if there is one.

    It ends when the thread that calls this ends: Linux counts that one as its parent (prctl(2), PR_SET_PDEATHSIG). Its
    socket lies in `folder`. The path of a Unix socket has at most 107 characters (unix(7)); a descriptor of a folder
    with a long name gives the socket a short path.
    """
    resource_tracker.ensure_running()
    if not is_supported():
        _HELPERS.update(child.pid for child in psutil.Process().children())
        return []
    _one_poll_at_a_time()
    config: dict[str, Any] = vars(process.current_process())["_config"]
    config["tempdir"] = folder
    long = len(os.fsencode(folder)) > LONG_FOLDER
    place = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}" if long else folder
    address = f"{place}/listener-{secrets.token_hex(4)}"
    parent, (alive_read, alive_write) = os.getpid(), os.pipe()
    with socket.socket(socket.AF_UNIX) as listener, warnings.catch_warnings():
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        # Other threads wait for this one, and hold no lock that the forkserver takes.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        if (pid := os.fork()) == 0:
            _serve(parent, listener.fileno(), alive_read)
    os.close(alive_read)
    _FORKSERVER._forkserver_address, _FORKSERVER._forkserver_alive_fd = address, alive_write
    _FORKSERVER._forkserver_pid = pid
    return [os.pidfd_open(pid)]


def _serve(parent: int, listener: int, alive: int) -> NoReturn:
    """Become the forkserver: drop what the parent has open, wait for requests, and never return."""
    try:
        end_with(parent)
        set_name("forkserver")
        for number in (signal.SIGINT, *HELD_SIGNALS):
            signal.signal(number, signal.SIG_IGN)
        hold_signals()
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in (0, 1, 2, listener, alive):
                try:
                    os.close(int(name))
                except OSError:  # that of the listing itself
                    continue
        _TRACKER._fd = _TRACKER._pid = None
        module: Any = forkserver
        module.reduction = SimpleNamespace(recvfds=_receive_descriptors, sendfds=reduction.sendfds)
        forkserver.main(listener, alive, [])
    except Exception:
        traceback.print_exc()  # to the agent's log
    finally:
        os._exit(0)


def _receive_descriptors(connection: socket.socket, most: int) -> list[int]:
    """Receive a worker's descriptors; who connects and sends none, as for want of descriptors, ends nothing."""
    try:
        return reduction.recvfds(connection, most)
    except EOFError:
        raise ConnectionAbortedError(errno.ECONNABORTED, "no descriptors were sent") from None


def hold_signals() -> None:
    """Keep the signals that would end a new worker until it can hear them: none is lost meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)


def parent_of_workers() -> int:
    """Return the pid of the process that makes the workers: the forkserver's, or this one's where they are spawned."""
    return (_FORKSERVER and _FORKSERVER._forkserver_pid) or os.getpid()


def start_method() -> str:
    """Return how multiprocessing makes a worker: forked with torch loaded, or started as a fresh Python."""
    return "forkserver" if is_supported() else "spawn"


def helpers() -> set[int]:
    """Return the pids of the processes that multiprocessing runs beside the workers."""
    return {_FORKSERVER._forkserver_pid, _TRACKER._pid} if is_supported() else _HELPERS


def use_own_resource_tracker() -> None:
    """Have a forked worker start a resource tracker of its own, which frees the run's shared memory with the run."""
    if is_supported():
        _TRACKER._fd = None  # the agent's


def run_exit_functions() -> None:
    """Remove temporary folders and the like in a forked worker: before Python 3.13, Python left that out."""
    if is_supported():
        atexit._run_exitfuncs()


def _one_poll_at_a_time() -> None:
    """Guard multiprocessing's reading of exit statuses: two launches' threads may poll the same worker."""
    lock, poll = threading.RLock(), popen_forkserver.Popen.poll

    def guarded(self: popen_forkserver.Popen, flag: int = os.WNOHANG) -> int | None:
        if flag != os.WNOHANG and self.returncode is None:
            connection.wait([self.sentinel])  # not under the lock: other workers may be polled meanwhile
        with lock:  # a second reader of the status would find none, and take it for 255
            return poll(self, flag)

    popen_forkserver.Popen.poll = guarded
