"""Ranks that run out of memory, and ranks that go wrong while they end."""

from __future__ import annotations

import atexit
import os
import threading
import time

import torch
import torch.distributed as dist
from failing_raises import raise_value_error


def run_out(worker):
    raise torch.OutOfMemoryError("no memory on this rank")


def run_out_while(others):
    """The one rank runs out; the others do something else meanwhile."""
    return lambda worker: (run_out if worker.rank == worker.plan.rank else others)(worker)


def raise_while_others_run_out(worker):
    if worker.rank != worker.plan.rank:
        run_out(worker)
    time.sleep(0.3)
    raise_value_error(worker)


def at_exit(what):
    def fault(worker):
        if worker.rank == worker.plan.rank:
            atexit.register(what)
        worker.barrier()

    return fault


def raise_at_exit():
    raise ValueError("raised while the process ends")


def stay_in_a_thread(worker):
    """Another rank than the one with faults of its own."""
    if worker.rank != worker.plan.rank:
        threading.Thread(target=time.sleep, args=(600,)).start()
    worker.barrier()


TOGETHER = {
    "oom while others wait": run_out_while(lambda worker: dist.all_reduce(torch.zeros(1))),
    "oom while others are done": run_out_while(lambda worker: None),
    "raise while others oom": raise_while_others_run_out,
    "raise at exit": at_exit(raise_at_exit),
    "die at exit": at_exit(lambda: os._exit(3)),
    "hang at exit": at_exit(lambda: time.sleep(600)),
    "a thread that stays": stay_in_a_thread,
}
