"""Lab 00, what every worker does: say who it is, add up the ranks with the others, or fail on purpose."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from lessons.start.plan import Failure


def measure(worker: Worker, point: SimpleNamespace) -> None:
    if isinstance(worker.plan, Failure):
        fail(worker, point)
    else:
        record_start_up(worker)
        hello(worker)


def hello(worker: Worker) -> None:
    """Say who this rank is, and add up all ranks' numbers, again and again."""
    ranks = torch.zeros(1, device=worker.device)

    def add_up() -> None:
        ranks.fill_(worker.rank)
        dist.all_reduce(ranks)  # now every rank holds 0 + 1 + 2 + …

    for timing in worker.time(add_up, warm_ups=0, repeats=worker.plan.sums, before=worker.barrier):
        worker.record(
            iteration=timing.iteration,
            seconds=timing.seconds,
            sum_of_ranks=ranks.item(),
            **process_facts(worker.device),
        )


def record_start_up(worker: Worker) -> None:
    """Record each part of this process's start-up as a span."""
    for begun, ended, what in worker.startup():
        worker.span(what, "start-up", begun * 1e6, ended * 1e6)


def process_facts(device: torch.device) -> dict[str, Any]:
    """Return the process, its device, the device's free memory in GiB, and how many cores it may use."""
    on_gpu = device.type == "cuda"
    return {
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU process",
        "free_gib": torch.cuda.mem_get_info(device)[0] / 2**30 if on_gpu else None,
        "cores": len(os.sched_getaffinity(0)),
    }


def fail(worker: Worker, point: SimpleNamespace) -> None:
    """Record a row; where the point says so, one rank fails while the others wait for it."""
    worker.record(said="here")
    worker.barrier()  # when one rank dies, the launcher ends the others: each has its row by then
    if point.fails and worker.rank == worker.plan.rank:
        match worker.plan.kind:
            case "raises":
                raise ValueError("this rank fails on purpose")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leaves":
                os._exit(0)
            case "hangs":
                time.sleep(3600)
    worker.barrier()
