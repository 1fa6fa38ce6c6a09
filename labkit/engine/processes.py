"""Which processes belong to a run, how all of them end, and how a process is tied to its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

import psutil

from labkit.engine.run_folder import RunFolder
from labkit.node.occupancy import MARK_VARIABLE as MARK_VARIABLE  # names the run to which a process belongs

BLANK_MARK = "-" * 32  # as long as a run's mark, which a worker writes over it
HELD_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # blocked until a new worker can hear them: none is lost meanwhile
KILL_SECONDS = 5.0  # then what even SIGKILL does not end is given up: a process stuck in a driver, or another user's
CARE_SECONDS = 1.0  # of them, for caretakers
CARETAKERS = ("multiprocessing.resource_tracker", "torch_shm_manager")  # free shared memory when its users are gone
PF_EXITING = 0x4  # a flag of a process that is being ended: its files may be closed already (linux/sched.h)
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36


class SlurmTask:
    """The number of the node that this process serves, as Slurm tells it to all processes there; "" beside a kernel.

    Two slurmd may share a machine: each station then ends the processes of its own node alone.
    """

    number = ""


def members(run: RunFolder) -> list[psutil.Process]:
    """Return the living processes that belong to the run: those with its mark in their environment, and all below them.

    A process that was started with an environment of its own has no mark, but stays below a worker: see
    `become_subreaper`.
    """
    marked, below = [], defaultdict(list)
    for process in psutil.process_iter():
        try:
            below[process.ppid()].append(process)
            environment = process.environ()
            here = not SlurmTask.number or environment.get("SLURM_PROCID", SlurmTask.number) == SlurmTask.number
            if here and environment.get(MARK_VARIABLE) == run.mark:
                marked.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
    alive_by_process = {}
    while marked:
        process = marked.pop()
        if process not in alive_by_process:
            alive_by_process[process] = is_alive(process)
            marked += below[process.pid]
    return [process for process, alive in alive_by_process.items() if alive]


def terminate(run: RunFolder, seconds: float) -> None:
    """Ask every process of the run but caretakers to end, and wait for their end, so many seconds at most."""
    alive = members(run)
    for process in alive:
        if not is_caretaker(process):
            send_signal(process, signal.SIGTERM)
    psutil.wait_procs(alive, timeout=seconds)


def kill(run: RunFolder) -> None:
    """Kill every process of the run, until none is left; caretakers may end by themselves once the others have.

    psutil sends no signal to a pid whose start time differs from the one it saw, so a reused pid is safe.
    """
    begun = time.monotonic()
    while (alive := members(run)) and (spent := time.monotonic() - begun) < KILL_SECONDS:
        for process in alive:
            if spent > CARE_SECONDS or not is_caretaker(process):
                send_signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=0.2)


def send_signal(process: psutil.Process, number: int) -> None:
    """Send the signal, unless the process has ended."""
    try:
        process.send_signal(number)
    except psutil.Error:  # it ended by itself
        return


def is_caretaker(process: psutil.Process) -> bool:
    """Whether the process frees shared memory when the processes that use it are gone."""
    try:
        return any(name in argument for argument in process.cmdline() for name in CARETAKERS)
    except psutil.Error:
        return False


def is_alive(process: psutil.Process | int) -> bool:
    """Whether the process, or the one of this pid, has not ended; a zombie has."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def has_begun_to_end(pid: int) -> bool:
    """Whether the process of this pid has ended, or is just being ended (proc_pid_stat(5): state and flags).

    Where this process sees no /proc, such as after chroot(2), nothing is known of another one.
    """
    try:
        state, *_, flags = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:7]
    except (FileNotFoundError, ProcessLookupError):
        return Path("/proc/self/stat").exists()
    return state in (b"Z", b"X") or bool(int(flags) & PF_EXITING)


def is_stopped(process: psutil.Process) -> bool:
    """Whether a signal has stopped the process (SIGSTOP, Ctrl-Z): it does nothing until it is continued."""
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def end_with(parent: int) -> None:
    """Have this process killed when the process that made it ends (prctl(2)); end immediately if that has happened."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """Have `ps -c` show a name of at most 15 bytes (prctl(2)): what is forked has the agent's command."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def become_subreaper() -> None:
    """Become the parent of every process below this one whose own parent ends (prctl(2)): none of them gets lost."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
