"""Ranks that break what their own report needs, fork and come back, or wait while all are stopped."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist


def raise_value_error():
    raise ValueError("the real reason")


def raise_without_output(worker):
    os.close(2)
    raise_value_error()


def raise_without_files(worker):
    """All files are closed but gloo's epoll: without it, gloo's own thread aborts the process before it can report."""
    for number in range(3, 1000):
        with contextlib.suppress(OSError):
            if "eventpoll" not in os.readlink(f"/proc/self/fd/{number}"):
                os.close(number)
    raise_value_error()


def raise_among_patches(worker):
    json.dumps = time.time = time.monotonic = lambda *_, **__: 1 / 0
    raise_value_error()


def raise_nameless(worker):
    class Nameless(type):
        @property
        def __name__(cls):
            raise RuntimeError("no name")

    class Unnamed(Exception, metaclass=Nameless):
        pass

    raise Unnamed("the real reason")


def interrupt_from_threads(worker):
    """Interrupts come all the time, also while this rank reports the first one."""

    def interrupt():
        while True:
            _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    time.sleep(60)


def fork_and_return(worker):
    """The forked process goes on with the sweep, as if it were the worker."""
    dist.barrier()
    if os.fork():
        time.sleep(0.5)


def fork_and_exit(worker):
    if not os.fork():
        sys.exit(0)
    os.wait()
    dist.barrier()


def change_root(worker):
    dist.barrier()
    if worker.rank == worker.plan.rank:
        os.chroot(worker.run.folder)


def sleep_long(worker):
    time.sleep(10)


def sleep_with_the_lock_of_python(worker):
    """A function of C that any signal ends, while no other thread of Python can run."""
    dist.barrier()
    if worker.rank == worker.plan.rank:
        ctypes.PyDLL(None).sleep(60)
    dist.all_reduce(torch.zeros(1))


def wait_then_go_on(worker):
    time.sleep(2.5)
    dist.all_reduce(torch.zeros(1))


ALONE = {
    "no output": raise_without_output,
    "no files": raise_without_files,
    "patches": raise_among_patches,
    "nameless": raise_nameless,
    "interrupts": interrupt_from_threads,
}
TOGETHER = {"fork": fork_and_return, "fork and exit": fork_and_exit, "wait": wait_then_go_on}
TOGETHER |= {
    "chroot": change_root,
    "no environment": lambda worker: os.environ.clear(),
    "sleep": sleep_long,
    "sleep in C": sleep_with_the_lock_of_python,
}
