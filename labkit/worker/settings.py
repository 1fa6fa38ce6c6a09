"""How a worker is set up before a point and tidied up after it: groups, threads, precision, memory."""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
import torch._dynamo  # an optimizer imports it: here it is loaded once, not by every worker of every launch
import torch.distributed as dist

from labkit.engine.worker import Worker


def prepare(worker: Worker) -> dict[int, Any]:
    """Make a process group for each number of ranks that the plan uses (None: all), the same on every rank."""
    if worker.device.type == "cpu":
        torch.set_num_threads(1)  # as a GPU does not lend its cores to its neighbour
    needed = sorted({getattr(point, "ranks", worker.gpus) for point in worker.plan.points()})
    return {n: None if n == worker.gpus else dist.new_group(list(range(n))) for n in needed}


def set_precision(precision: str) -> None:
    """Have float32 matrices multiplied in float32 or, for "tf32", on the tensor cores with 10 bits of mantissa.

    The same holds for convolutions, where torch's own default is TF32.
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


NCCL_LOOKS = 0.25  # seconds: twice as long as NCCL's watchdog takes to let the last collectives' tensors go


def release_memory(worker: Worker) -> None:
    """Release the point's memory, so that the next one starts as the first did."""
    gc.collect()
    if worker.device.type == "cuda":
        worker.synchronize()
        time.sleep(NCCL_LOOKS)
        torch.cuda.empty_cache()
