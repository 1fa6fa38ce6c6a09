"""What the ranks of the lab of ends do. Its lines are looked up by their text, not by numbers typed into the tests."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path

import ends_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
import psutil
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def prepare(worker) -> None:
    if worker.plan.before and worker.rank == worker.plan.rank:
        FAULTS[worker.plan.before](worker)


def measure(worker, point) -> None:
    worker.record(iteration=0, pid=os.getpid(), started=psutil.Process().create_time())
    worker.barrier()  # when one rank dies, the launcher ends the others: each has its row by then
    if point.fault in EVERYWHERE:
        EVERYWHERE[point.fault](worker)
    elif worker.rank == worker.plan.rank:
        FAULTS[point.fault](worker)
    else:
        dist.all_reduce(torch.zeros(1))


def raise_value_error(worker):
    raise ValueError("this rank raises on purpose")


def sleep(worker):
    time.sleep(600)  # it never joins the others


def sleep_and_be_woken(worker):
    """Signals wake this rank all the time, and Python sleeps on for what is left."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    sleep(worker)


def sleep_on_a_slow_disk(worker):
    """The stack that is asked for reaches its file late."""
    reading, writing = os.pipe()
    faulthandler.register(signal.SIGUSR1, file=writing, all_threads=True)

    def write_late():
        select.select([reading], [], [])
        time.sleep(1.5)
        worker.run.stack_file(worker.rank).write_bytes(os.read(reading, 2**16))

    threading.Thread(target=write_late, daemon=True).start()
    sleep(worker)


def lock_twice(library):
    """Wait for ever in C for a mutex that this thread holds itself."""

    def fault(worker):
        mutex = ctypes.create_string_buffer(64)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)  # for ever

    return fault


def stop(worker):
    os.kill(os.getpid(), signal.SIGSTOP)


def gather(worker):
    dist.all_gather([torch.zeros(1)] * 2, torch.zeros(1))  # while the others reduce


def keep_busy(worker):
    for iteration in range(1, 6000):
        worker.record(iteration=iteration)
        time.sleep(0.1)


def pause(worker):
    time.sleep(2)
    worker.barrier()


def turn_deaf(worker):
    """Go on after every signal that can be caught; the first one leaves the file "heard" in the run's folder."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: Path(worker.run.folder, "heard").touch())
    worker.record(iteration=1, deaf=True)
    time.sleep(600)


def leave_a_family(worker, nameless=True):
    """Start every kind of process that may outlive its parent, and record each.

    The loader, which imports torch first, is that of one rank alone.
    """
    global LOADER, POOL, SHARED  # they stay as long as this process does

    def record(kind, pid):
        worker.record(iteration=1, kind=kind, pid=pid, started=psutil.Process(pid).create_time())

    record("new session", subprocess.Popen(SLEEPER, start_new_session=True).pid)
    if worker.rank == 0:
        with signs_of_life(worker):  # a worker starts its processes by forkserver: this one imports torch
            LOADER = iter(DataLoader(torch.zeros(64, 4), num_workers=1, persistent_workers=True))
            next(LOADER)
        record("loader", LOADER._workers[0].pid)
    POOL = multiprocessing.get_context("fork").Pool(1)
    record("pool", POOL.apply(os.getpid))
    record("daemon", fork_twice())
    if nameless:
        record("nameless", subprocess.Popen(SLEEPER, start_new_session=True, env={}).pid)
    SHARED = shared_memory.SharedMemory(create=True, size=4096)
    worker.record(iteration=1, kind="shared memory", name=SHARED.name)
    worker.barrier()


@contextlib.contextmanager
def signs_of_life(worker):
    """Report every second that this rank goes on: what it waits for may take longer than a test's patience."""
    over = threading.Event()

    def report():
        while not over.wait(1):
            worker.event("waits")

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def fork_twice() -> int:
    """Become nobody's child, as daemons do."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.setsid()
        if not (daemon := os.fork()):
            os.execv(SLEEPER[0], SLEEPER)
        os.write(writing, str(daemon).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reading, 20))


FAULTS = {
    "raise": raise_value_error,
    "return": lambda worker: None,
    "exit 0": lambda worker: os._exit(0),
    "hang": sleep,
    "woken": sleep_and_be_woken,
    "slow disk": sleep_on_a_slow_disk,
    "deadlock": lock_twice(ctypes.CDLL(None)),
    "deadlock with the lock of Python": lock_twice(ctypes.PyDLL(None)),
    "stop": stop,
    "mismatch": gather,
}
EVERYWHERE = {
    "none": lambda worker: worker.barrier(),
    "sleep": sleep,
    "pause": pause,
    "busy": keep_busy,
    "deaf": turn_deaf,
    "family": leave_a_family,
    "named family": lambda worker: leave_a_family(worker, nameless=False),
}
