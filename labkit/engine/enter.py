"""How a process that the forkserver has just made becomes a worker: its mark, guard, environment, output, store."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import io
import itertools
import os
import signal
import sys
import tempfile
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from labkit.engine.preload import FORKSERVER, HELD, adopt, end_with, in_standard_library
from labkit.engine.run import Run

UNBUFFERED = 2  # _IONBF of setvbuf(3)

# What torchrun's agent sets in a worker; all else there is the kernel's, as it was at the launch.
AGENT_SETS = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)


def enter(request: dict[str, Any]) -> None:
    """Become a worker of the run that the host's request names, and measure its points."""
    os.setsid()  # a process group of its own, as under torchrun
    run = Run(request["folder"])
    wear(run.mark)
    end_with(int(os.environ[FORKSERVER]))
    adopt()
    resource_tracker._resource_tracker._fd = None  # the agent's; its own frees the run's shared memory with the run
    listen()
    dress(request["environment"], request["path"])
    sys.dont_write_bytecode = True  # a module that is edited twice within a second would be met as it was before
    write_to(run.log_file(int(os.environ["RANK"])))
    with contextlib.suppress(OSError):  # the notebook's folder may have been removed under it
        os.chdir(request["cwd"])

    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # the library was loaded before the variable was set

    from labkit.engine.worker import main

    main(request["folder"], request["first_point"], request["store"])
    atexit._run_exitfuncs()  # temporary folders and the like: before Python 3.13, a forked process left them out


def wear(mark: str) -> None:
    """Write the run's mark over its placeholder in this process's initial environment.

    That is what /proc shows of it, and what every process forked from it inherits; os.environ would reach only those
    that are executed anew.
    """
    first = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in itertools.takewhile(bool, (first[i] for i in itertools.count())):
        if ctypes.string_at(address).startswith(b"LABKIT_RUN="):
            ctypes.memmove(address + len("LABKIT_RUN="), mark.encode(), len(mark))


def listen() -> None:
    """Heed the signals that the agent ignores, those too that came since this process was forked."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in HELD:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def dress(environment: dict[str, str], path: list[str]) -> None:
    """Put on the kernel's environment as it was at the launch; keep the ranks and addresses from torchrun's agent.

    Imports look where the kernel's do, `path`, but no file beside a script or a notebook hides a module of Python's.
    """
    given = {name: os.environ[name] for name in AGENT_SETS if name in os.environ}
    os.environ.clear()
    os.environ.update(given | environment)
    named = filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
    standard = [folder for folder in sys.path if in_standard_library(folder)]
    sys.path[:] = dict.fromkeys([*named, *standard, *path, *sys.path])
    tempfile.tempdir = None  # the forkserver may have asked for it, under the agent's environment


def write_to(log: Path) -> None:
    """Send what this process and its C libraries print to the log, at once: a killed worker flushes nothing."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1), os.dup2(file, 2), os.close(file)
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, UNBUFFERED, 0)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
        for number in (1, 2)
    )


def meeting_place(file: str) -> Any:
    """Return the store of all ranks: in this file, or the one that torchrun's environment names."""
    import torch.distributed as dist

    if not file:
        return next(dist.rendezvous("env://"))[0]
    store = dist.FileStore(file)
    store.set_timeout(dist.constants.default_pg_timeout)
    return store
