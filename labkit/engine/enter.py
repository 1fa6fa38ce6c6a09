"""How a process becomes a worker: its mark, guard, environment, output and store; then it measures the plan's points.

The agent's workers call `enter`; a bare torchrun may run `-m labkit.engine.enter RUN`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import itertools
import os
import signal
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from json import loads
from pathlib import Path
from time import monotonic
from typing import Any

from labkit.engine import failure, forkserver
from labkit.engine.processes import HELD_SIGNALS, MARK_VARIABLE, become_subreaper, end_with, set_name
from labkit.engine.run import Run
from labkit.engine.sampler import CONDITIONS
from labkit.engine.worker import Worker
from labkit.repository import without_front_doors

UNBUFFERED = 2  # _IONBF of setvbuf(3)

# What torchrun's agent sets in a worker; all else there is the kernel's, as it was at the launch.
AGENT_VARIABLES = (
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
    set_process_mark(run.mark)
    set_name(f"rank {os.environ['RANK']}")
    end_with(request["parent"])
    become_subreaper()
    restore_signals()
    apply_environment(request["environment"], request["path"])
    sys.dont_write_bytecode = True  # a module that is edited twice within a second would be met as it was before
    redirect_output(run.log_file(int(os.environ["RANK"])))
    with contextlib.suppress(OSError):  # the notebook's folder may have been removed under it
        os.chdir(request["cwd"])

    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # the library was loaded before the variable was set

    run_rank(run, request["first_point"], request["store"])
    try:
        forkserver.AT_EXIT.close()
    except Exception:
        traceback.print_exc()


def run_rank(run: Run, first_point: int = 0, store: str | dict[str, Any] = "") -> None:
    """Run one rank from start to end; whatever it raises is reported in its events before the process ends.

    `store` is the file at which the ranks meet, or the rendezvous of several nodes; without it they meet at torchrun's.
    """
    rank = int(os.environ["RANK"])
    without_front_doors()
    faulthandler.enable(sys.stderr, all_threads=False)  # a crash in C tells its Python line to the log
    faulthandler.register(signal.SIGUSR1, file=run.stack_file(rank).open("w", encoding="utf-8"), all_threads=True)
    worker = Worker(run)
    try:
        worker.event("started", pid=os.getpid())
        worker.note_milestone("Python starts")
        from labkit.worker import probes  # before the lab's code, which may change what it stands on

        lab = importlib.import_module(loads(run.plan_file.read_text(encoding="utf-8"))["worker"])
        gc.freeze()  # what is imported stays: a collection after a point looks only at what points have left
        worker.note_milestone("torch is imported")
        worker.join(run.plan, store_of_ranks(store))
        worker.barrier()
        worker.note_milestone("the ranks meet")
        before = _probe_results(worker, probes.probe)
        worker.note_milestone("conditions are measured")
        if hasattr(lab, "prepare"):
            worker.state = lab.prepare(worker)
            worker.note_milestone("the lab prepares")
        worker.barrier()
        worker.event("ready", conditions=before)
        worker.measure_points(lab, first_point)
        worker.event("finished", conditions=_probe_results(worker, probes.probe))
    except BaseException as error:
        try:
            failure.report(worker, error)
        finally:
            os._exit(1)  # without the clean-up of a process group whose peers may be stuck
    worker.barrier()

    import torch.distributed as dist

    dist.destroy_process_group()


def _probe_results(worker: Worker, probe: Callable[[Any], dict[str, float]]) -> dict[str, float]:
    """Return what this rank can tell of its host and GPU; nothing with LABKIT_CONDITIONS=0."""
    if os.environ.get(CONDITIONS) == "0":
        return {}
    with contextlib.suppress(Exception):  # what the lab has left behind may stand in the way
        return probe(worker.device)
    return {}


def set_process_mark(mark: str) -> None:
    """Write the run's mark over its placeholder in this process's initial environment.

    That is what /proc shows of it, and what every process forked from it inherits; os.environ would reach only those
    that are executed anew.
    """
    first = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in itertools.takewhile(bool, (first[i] for i in itertools.count())):
        if ctypes.string_at(address).startswith(f"{MARK_VARIABLE}=".encode()):
            ctypes.memmove(address + len(MARK_VARIABLE) + 1, mark.encode(), len(mark))


def restore_signals() -> None:
    """React to the signals that the processes above ignore or handle, also to those that came since the fork."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (*HELD_SIGNALS, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)


def apply_environment(environment: dict[str, str], path: list[str]) -> None:
    """Take the kernel's environment as it was at the launch; keep the ranks and addresses from torchrun's agent.

    Imports look where the kernel's do, `path`, but no file beside a script or a notebook hides a module of Python's.
    """
    agent_variables = {name: os.environ[name] for name in AGENT_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update(agent_variables | environment)
    named = filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
    standard = [folder for folder in sys.path if in_standard_library(folder)]
    sys.path[:] = dict.fromkeys([*named, *standard, *path, *sys.path])
    tempfile.tempdir = None  # the forkserver may have asked for it, under the agent's environment


def in_standard_library(path: Path | str) -> bool:
    """Return whether the folder or file belongs to Python itself."""
    zipped = sysconfig.get_config_var("py_version_nodot")
    is_standard = f"{path}/".startswith(f"{sysconfig.get_path('stdlib')}/") or f"{path}".endswith(
        f"/python{zipped}.zip"
    )
    return is_standard and "-packages" not in str(path)


def redirect_output(log: Path) -> None:
    """Send what this process and its C libraries print to the log immediately: a killed worker flushes nothing."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, UNBUFFERED, 0)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
        for number in (1, 2)
    )


def store_of_ranks(place: str | dict[str, Any]) -> Any:
    """Return the store of all ranks: in this file, of this rendezvous, or the one that torchrun's environment names."""
    import torch.distributed as dist
    from torch.distributed.constants import default_pg_timeout

    if not place:
        return next(dist.rendezvous("env://"))[0]
    if isinstance(place, dict):
        from labkit.engine.rendezvous import join_store

        return join_store(place, "workers")
    store = dist.FileStore(place)
    store.set_timeout(default_pg_timeout)
    return store


if __name__ == "__main__":
    end_with(os.getppid())
    bare = Run(sys.argv[1])
    redirect_output(bare.log_file(int(os.environ["RANK"])))
    os.environ.setdefault("LABKIT_LAUNCHED", repr(monotonic()))
    run_rank(bare, first_point=int(sys.argv[2]) if sys.argv[2:] else 0)
