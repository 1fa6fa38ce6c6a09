"""Copies between GPUs, and between a GPU and the host: each timed, and its bytes looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker


def between_gpus(worker: Worker, point: SimpleNamespace) -> None:
    """The source's rank copies its buffer to the target GPU. CUDA chooses the path."""
    if worker.rank == point.source:
        origin = worker.state
        device = f"cuda:{point.target}" if origin.is_cuda else "cpu"
        target = torch.zeros_like(origin, device=device)
        record_copies(worker, lambda: target.copy_(origin, non_blocking=True), lambda: target)


def between_processes(worker: Worker, point: SimpleNamespace) -> None:
    """Without GPUs, the source's process sends its buffer to the target's, which returns at the end what it got."""
    received = torch.zeros_like(worker.state)
    if worker.rank == point.source:

        def arrived() -> torch.Tensor:
            dist.recv(received, point.target)
            return received

        record_copies(worker, lambda: dist.send(worker.state, point.target), arrived)
    elif worker.rank == point.target:
        for _ in range(worker.plan.warm_ups + worker.plan.repeats):
            dist.recv(received, point.source)
        dist.send(received, point.source)


def with_host(worker: Worker, point: SimpleNamespace) -> None:
    """Copy between this rank's GPU and host memory: rank after rank, or all ranks simultaneously."""
    with on_numa_node(point.numa):
        pinned, gpu = point.memory == "pinned", worker.state
        host = torch.full(gpu.shape, worker.rank + 1.0, pin_memory=pinned)
        into_gpu = point.copy == "host_to_gpu"
        target, origin = (torch.zeros_like(gpu), host) if into_gpu else (host.zero_(), gpu)

        def copy() -> None:
            target.copy_(origin, non_blocking=pinned)

        if point.together:
            record_copies(worker, copy, lambda: target, before=worker.barrier)
            return
        for rank in range(worker.gpus):
            if rank == worker.rank:
                record_copies(worker, copy, lambda: target)
            worker.barrier()


def record_copies(worker: Worker, copy: Callable, arrived: Callable, before: Callable = lambda: None) -> None:
    """Record each repeat of a copy: its seconds, its GB/s (10^9 bytes per second), and whether the bytes arrived."""
    plan, size = worker.plan, worker.state.nbytes
    timings = [*worker.time(copy, warm_ups=plan.warm_ups, repeats=plan.repeats, before=before)]
    right = bool((arrived() == worker.rank + 1).all())
    for timing in timings:
        measured = {"seconds": timing.seconds, "gb_per_s": size / timing.seconds / 1e9}
        status = "ok" if right else "wrong bytes"
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, status=status, **measured)


@contextmanager
def on_numa_node(number: int) -> Iterator[None]:
    """Run on the CPUs of one NUMA node, whose memory new pages then come from (Linux's first-touch policy)."""
    before = os.sched_getaffinity(0)
    file = Path(f"/sys/devices/system/node/node{number}/cpulist")
    cpus = set()
    for part in file.read_text(encoding="utf-8").strip().split(",") if file.exists() else ():
        low, _, high = part.partition("-")
        cpus |= {*range(int(low), int(high or low) + 1)}
    os.sched_setaffinity(0, (cpus & before) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
