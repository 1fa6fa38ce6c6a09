"""Ranks that print much, or what is no text, or past Python."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import torch
import torch.distributed as dist
from failing_raises import die, raise_value_error

MEGABYTE = (b"x" * 99 + b"\n") * 10_000


def flood(worker):
    print(f"the first line of rank {worker.rank}")
    for _ in range(100):
        os.write(1, MEGABYTE)
    print(f"the last line of rank {worker.rank}")
    worker.barrier()
    if worker.rank == worker.plan.rank:
        raise_value_error(worker)
    dist.all_reduce(torch.zeros(1))


def print_without_end(worker):
    sys.stdout.write("the start of it" + "y" * 1_000_000 + "the end of it")
    die(signal.SIGKILL)(worker)


def print_bytes(worker):
    os.write(1, b"before " + bytes(range(256)) * 40 + b" after\n\x1b[31mred\x1b[0m\n")
    os._exit(3)


def print_progress(worker):
    for percent in range(100):
        sys.stdout.write(f"\rcopying: {percent} %")
    print("\rcopying: done")
    os._exit(3)


def print_from_c(worker):
    ctypes.CDLL(None).printf(b"printed from C, never flushed")
    os.write(2, b"\nwritten to standard error\n")
    die(signal.SIGKILL)(worker)


ALONE = {
    "one line": print_without_end,
    "bytes": print_bytes,
    "progress": print_progress,
    "from C": print_from_c,
}
TOGETHER = {"flood": flood}
