"""Ranks that raise, exit and are killed. Tests look these lines up by their text."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist


def raise_value_error(worker):
    raise ValueError("this rank raises on purpose")


def raise_unpicklable(worker):
    class Unpicklable(Exception):
        def __reduce__(self):
            raise TypeError("not to be pickled")

    error = Unpicklable("cannot cross a process")
    error.lock = threading.Lock()
    raise error


def raise_without_words(worker):
    class Wordless(Exception):
        def __str__(self):
            raise RuntimeError("no string")

        __repr__ = __str__

    raise Wordless("never read")


def raise_from_the_deep(worker):
    def odd(depth):
        return even(depth + 1)

    def even(depth):
        return odd(depth + 1)

    odd(0)


def raise_at_length(worker):
    raise ValueError("a long message " * 100_000)


def raise_half_a_character(worker):
    raise ValueError("half a pair: \ud800")


def raise_like_a_victim(worker):
    raise ValueError("broken pipe in the plumbing")


def raise_first(worker):
    """Every rank raises; the others as soon as the first one has said so, before its end is seen."""
    worker.barrier()
    first = worker.plan.rank
    while worker.rank != first and '"raised"' not in worker.run.events_file(first).read_text():
        time.sleep(0.001)
    raise ValueError(f"rank {worker.rank} raises its own")


def raise_after_the_victims(worker):
    """The others learn that this rank is gone, and say so, before it says why."""
    if worker.rank != worker.plan.rank:
        dist.all_reduce(torch.zeros(1))
    try:
        raise ValueError("this rank raises on purpose, late")
    finally:
        dist.destroy_process_group()
        time.sleep(0.5)


def raise_after_victims_in_disguise(worker):
    try:
        raise_after_the_victims(worker)
    except RuntimeError as error:
        raise KeyError("what the student made of it") from error


def hide(synchronise, forget: bool):
    """Another rank's end becomes an error of one's own, raised from None or with no earlier exception at all."""
    failed = False
    try:
        synchronise()
    except RuntimeError:
        failed = True
        if not forget:
            raise ValueError("I could not synchronise") from None
    if failed:
        raise ValueError("I could not synchronise")


def die_before_a_raise(number: int, *, forget: bool):
    def fault(worker):
        if worker.rank == worker.plan.rank:
            die(number)(worker)
        hide(lambda: dist.all_reduce(torch.zeros(1)), forget)

    return fault


def raise_before_a_raise_from_none(worker):
    hide(lambda: raise_after_the_victims(worker), forget=False)


def die_after_a_raise(worker):
    """This rank raises first; another one meets its end, and kills itself before anybody could look."""
    if worker.rank == worker.plan.rank:
        raise_value_error(worker)
    try:
        dist.all_reduce(torch.zeros(1))
    except RuntimeError:
        die(signal.SIGKILL)(worker)


def exit_among_the_deaf(worker):
    """The others do not heed the agent, which asks them to end when it sees this rank's end."""
    if worker.rank != worker.plan.rank:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    time.sleep(0.3)
    os._exit(3)


def die(number: int):
    return lambda worker: os.kill(os.getpid(), number)


ALONE = {
    "none": lambda worker: dist.all_reduce(torch.zeros(1)),
    "raise": raise_value_error,
    "unpicklable": raise_unpicklable,
    "wordless": raise_without_words,
    "deep": raise_from_the_deep,
    "long": raise_at_length,
    "half a character": raise_half_a_character,
    "like a victim": raise_like_a_victim,
    "system exit 0": lambda worker: sys.exit(0),
    "interrupt": die(signal.SIGINT),
    "exit 3": lambda worker: os._exit(3),
    "kill": die(signal.SIGKILL),
    "terminate": die(signal.SIGTERM),
    "segfault": lambda worker: ctypes.string_at(0),  # the crash
    "slow": lambda worker: time.sleep(2),
    "return early": lambda worker: None,
}
TOGETHER = {
    "first": raise_first,
    "late, in disguise": raise_after_victims_in_disguise,
    "late, hidden": raise_before_a_raise_from_none,
    "kill, hidden": die_before_a_raise(signal.SIGKILL, forget=False),
    "kill, forgotten": die_before_a_raise(signal.SIGKILL, forget=True),
    "terminate, forgotten": die_before_a_raise(signal.SIGTERM, forget=True),
    "raise, then a kill": die_after_a_raise,
    "exit 3 among the deaf": exit_among_the_deaf,
    "all exit 0": lambda worker: os._exit(0),
}
