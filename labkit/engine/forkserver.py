"""CPython's forkserver, as the agent and its workers need it: the only file that uses private names of CPython's.

Under a version of Python that is not in SUPPORTED, the agent spawns its workers instead, through public names alone.
Each spawned worker imports torch anew, which takes seconds. Shared memory that a spawned worker leaves behind is freed
when the agent ends, not when the run ends.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
from multiprocessing import connection, forkserver, popen_forkserver, process, resource_tracker, util
from typing import Any

import psutil

SUPPORTED = ((3, 11), (3, 12))  # the tests pass on 3.11; the runs in data/recorded were measured on 3.12
FORKSERVER = "LABKIT_FORKSERVER"  # the environment variable that tells the forkserver its parent's pid
LONG_FOLDER = 80  # bytes: Python adds a name of 18 for a socket

_FORKSERVER: Any = getattr(forkserver, "_forkserver", None)
_TRACKER: Any = getattr(resource_tracker, "_resource_tracker", None)
_HELPERS: set[int] = set()  # where workers are spawned: what this process had started before the first worker


def supported() -> bool:
    """Whether the private names are known to work under this version of Python."""
    return sys.version_info[:2] in SUPPORTED


def start(folder: str, preload: str) -> int | None:
    """Start the forkserver, which imports the module `preload`; return its pid, None where workers are spawned.

    Its socket lies in `folder`. The path of a Unix socket has at most 107 characters (unix(7)); a descriptor of a
    folder with a long name gives the socket a short path.
    """
    if not supported():
        resource_tracker.ensure_running()
        _HELPERS.update(child.pid for child in psutil.Process().children())
        return None
    _one_poll_at_a_time()
    multiprocessing.set_forkserver_preload([preload])
    config: dict[str, Any] = vars(process.current_process())["_config"]
    long = len(os.fsencode(folder)) > LONG_FOLDER
    config["tempdir"] = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}" if long else folder
    util.abstract_sockets_supported = False  # in 3.11.0 Python preferred a socket that every user can connect to
    os.environ[FORKSERVER] = str(os.getpid())
    forkserver.ensure_running()
    del os.environ[FORKSERVER]
    config["tempdir"] = folder
    return _FORKSERVER._forkserver_pid


def start_method() -> str:
    """Return how multiprocessing makes a worker: forked with torch loaded, or started as a fresh Python."""
    return "forkserver" if supported() else "spawn"


def helpers() -> set[int]:
    """Return the pids of the processes that multiprocessing runs beside the workers."""
    return {_FORKSERVER._forkserver_pid, _TRACKER._pid} if supported() else _HELPERS


def use_own_resource_tracker() -> None:
    """Have a forked worker start a resource tracker of its own, which frees the run's shared memory with the run."""
    if supported():
        _TRACKER._fd = None  # the agent's


def run_exit_functions() -> None:
    """Remove temporary folders and the like in a forked worker: before Python 3.13, Python left that out."""
    if supported():
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
