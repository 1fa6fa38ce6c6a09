"""Lab 01, what every worker does: time copies between GPUs, between its GPU and the host, and around a ring."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from lessons.topology.plan import Rings
from lessons.topology.worker.copies import between_gpus, between_processes, with_host
from lessons.topology.worker.ring import chosen_ring, send_around

_WARM_SECONDS = 2.0


def prepare(worker: Worker) -> torch.Tensor:
    """Return this rank's buffer, which holds its number plus one.

    A GPU that stood idle raises its clocks only after a while of work: it copies to every other one for a moment.
    """
    elements = worker.plan.mib * 2**20 // 4
    buffer = torch.full((elements,), worker.rank + 1.0, device=worker.device)
    if worker.device.type == "cpu":
        torch.set_num_threads(1)
        return buffer
    worker.drives = range(worker.gpus)
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_SECONDS:
        for gpu in worker.drives:
            buffer.to(f"cuda:{gpu}", copy=True)
        worker.synchronize()
    return buffer


def measure(worker: Worker, point: SimpleNamespace) -> None:
    if isinstance(worker.plan, Rings):
        send_around(worker, chosen_ring(worker, point.order))
    elif point.copy != "gpu_to_gpu":
        with_host(worker, point)
    elif worker.device.type == "cuda" or point.source == point.target:
        between_gpus(worker, point)
    else:
        between_processes(worker, point)
    worker.barrier()
