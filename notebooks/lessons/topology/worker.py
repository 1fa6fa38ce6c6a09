"""Lab 01, what every worker does: time copies between GPUs, and between its GPU and the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker

_WARM_SECONDS = 2.0


def prepare(worker: Worker) -> dict[int, torch.Tensor]:
    """Allocate one buffer on every device that this rank copies to, and keep its own busy for a moment.

    Each rank copies from its own buffer. A GPU that stood idle raises its clocks only after a while of work.
    """
    if worker.device.type == "cpu":
        torch.set_num_threads(1)
        return {worker.rank: torch.ones(_elements(worker))}
    gpus = worker.drives = range(worker.gpus)
    buffers = {gpu: torch.full((_elements(worker),), float(worker.rank), device=f"cuda:{gpu}") for gpu in gpus}
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_SECONDS:
        for gpu in gpus:
            buffers[gpu].copy_(buffers[worker.rank])
        worker.synchronize()
    return buffers


def _elements(worker: Worker) -> int:
    return worker.plan.mib * 2**20 // 4


def measure(worker: Worker, point: SimpleNamespace) -> None:
    if point.copy == "gpu_to_gpu":
        _between_gpus(worker, point)
    else:
        _with_host(worker, point)
    worker.barrier()


def _between_gpus(worker: Worker, point: SimpleNamespace) -> None:
    """The source's rank copies its buffer to the target GPU; without GPUs, one process sends it to another."""
    if worker.rank not in (point.source, point.target):
        return
    mine = worker.state[worker.rank]
    if worker.device.type == "cuda":
        if worker.rank == point.source:
            within = point.source == point.target
            other = torch.empty_like(mine) if within else worker.state[point.target]
            _timed(worker, lambda: other.copy_(mine, non_blocking=True))
    elif point.source == point.target:
        other = torch.zeros_like(mine)
        _timed(worker, lambda: other.copy_(mine))
    elif worker.rank == point.source:
        _timed(worker, lambda: dist.send(mine, point.target))
    else:  # the receiver's time includes the wait for the sender: only the sender's counts
        for _ in range(worker.plan.warm_ups + worker.plan.repeats):
            dist.recv(mine, point.source)


def _with_host(worker: Worker, point: SimpleNamespace) -> None:
    """Copy between this rank's GPU and host memory of one NUMA node: rank after rank, or all ranks simultaneously."""
    with _on_numa_node(point.numa):
        pinned = point.memory == "pinned"
        host = torch.zeros(_elements(worker), pin_memory=pinned)  # its pages come from the node of its CPU
        device = worker.state[worker.rank]
        target, origin = (device, host) if point.copy == "host_to_gpu" else (host, device)

        def copy() -> None:
            target.copy_(origin, non_blocking=pinned)

        if point.together:
            _timed(worker, copy, before=worker.barrier)
            return
        for rank in range(worker.gpus):
            if rank == worker.rank:
                _timed(worker, copy)
            worker.barrier()


def _timed(worker: Worker, copy: Callable[[], object], before: Callable[[], object] = lambda: None) -> None:
    """Record warm-ups and repeats of one copy, with its rate in GB/s (10^9 bytes a second)."""
    size = 4 * _elements(worker)
    for timing in worker.time(copy, warm_ups=worker.plan.warm_ups, repeats=worker.plan.repeats, before=before):
        rate = size / timing.seconds / 1e9
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, seconds=timing.seconds, gb_per_s=rate)


@contextmanager
def _on_numa_node(number: int) -> Iterator[None]:
    """Run on the CPUs of one NUMA node, whose memory new pages then come from (Linux's first-touch policy)."""
    before = os.sched_getaffinity(0)
    file = Path(f"/sys/devices/system/node/node{number}/cpulist")
    cpus = set()
    if file.exists():
        for part in file.read_text().strip().split(","):
            low, _, high = part.partition("-")
            cpus |= set(range(int(low), int(high or low) + 1))
    os.sched_setaffinity(0, (cpus & before) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
