"""Lab 00, what every worker does: say who it is, add up the ranks with the others, or fail on purpose."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from lessons.start.plan import Failure


def measure(worker: Worker, point: SimpleNamespace) -> None:
    if isinstance(worker.plan, Failure):
        fail(worker, point)
    else:
        hello(worker)


def hello(worker: Worker) -> None:
    """Record who and where this rank is, then how long each sum over all ranks takes."""
    on_gpu = worker.device.type == "cuda"
    name = torch.cuda.get_device_name(worker.device) if on_gpu else "CPU process"
    free = torch.cuda.mem_get_info(worker.device)[0] / 2**30 if on_gpu else None
    for begun, ended, what in worker.startup():
        worker.span(what, "start-up", begun * 1e6, ended * 1e6)
    ranks = torch.zeros(1, device=worker.device)

    def add_up() -> None:
        ranks.fill_(worker.rank)
        dist.all_reduce(ranks)

    for timing in worker.time(add_up, warm_ups=0, repeats=worker.plan.sums, before=worker.barrier):
        worker.record(
            iteration=timing.iteration,
            seconds=timing.seconds,
            sum_of_ranks=ranks.item(),
            pid=os.getpid(),
            device=name,
            free_gib=free,
            cores=len(os.sched_getaffinity(0)),
        )


def fail(worker: Worker, point: SimpleNamespace) -> None:
    """Record a row; where the point says so, one rank fails while the others wait for it."""
    worker.record(said="here")
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
