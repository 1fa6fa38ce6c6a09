"""The worker of the GPU faults: the last rank fails, the others wait for it in NCCL's all_reduce."""

import os
import signal
import time

import torch
import torch.distributed as dist
from gpu_plan import GpuFaults


def measure(worker, point):
    assert isinstance(worker.plan, GpuFaults)
    ones = torch.ones(2**20, device=worker.device)
    dist.all_reduce(ones)  # the connections exist before anything goes wrong
    torch.cuda.synchronize()
    if worker.rank == worker.gpus - 1:
        fail(point.fault)
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    worker.record(sum=ones[0].item())


def fail(fault):
    if fault == "out of memory":
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    elif fault == "raises":
        raise ValueError("this rank fails on purpose")
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "absent":
        time.sleep(3600)
