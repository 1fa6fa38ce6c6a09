"""What the ranks of the failing lab do: one has the fault that the point names, or all have a part in it."""

from __future__ import annotations

import os

import failing_memory
import failing_odd
import failing_output
import failing_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
import failing_raises
import failing_results
import psutil
import torch
import torch.distributed as dist

ALONE = failing_raises.ALONE | failing_output.ALONE | failing_results.ALONE | failing_odd.ALONE
TOGETHER = failing_raises.TOGETHER | failing_output.TOGETHER | failing_results.TOGETHER | failing_memory.TOGETHER
TOGETHER |= failing_odd.TOGETHER


def prepare(worker) -> None:
    if worker.plan.before and worker.rank == worker.plan.rank:
        ALONE[worker.plan.before](worker)


def measure(worker, point) -> None:
    worker.record(iteration=0, pid=os.getpid(), started=psutil.Process().create_time())
    worker.barrier()  # when one rank dies, the launcher ends the others: each has its row by then
    if point.fault in TOGETHER:
        TOGETHER[point.fault](worker)
    elif worker.rank == worker.plan.rank:
        ALONE[point.fault](worker)
    else:
        dist.all_reduce(torch.zeros(1))
