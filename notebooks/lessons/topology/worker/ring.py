"""A ring on this node: who sends to whom, where each host buffer lies, and what the slowest hop carries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from lessons.topology.worker.copies import on_numa_node

Ring = list[tuple[int, int]]  # in the order of the hops: a rank, and the NUMA node of its host buffer
_PAIR_REPEATS = 3


def chosen_ring(worker: Worker, order: str) -> Ring:
    """Return the ranks by number, or as the student's `best_ring` orders them by the rates of this node's pairs."""
    numa = worker.plan.numa
    if order == "by number":
        return list(enumerate(numa))
    rates = pair_rates(worker).tolist()
    ring = torch.zeros(worker.gpus, 2, dtype=torch.int64)
    if worker.rank == 0:
        asked = load_function(Path(worker.plan.yours), "best_ring")(rates, list(numa), worker.gpus)
        if sorted(rank for rank, _ in asked) != list(range(worker.gpus)):
            raise ValueError(f"best_ring gives {asked!r}, which is no ring of {worker.gpus} GPUs")
        ring[:] = torch.tensor([*map(list, asked)])
    dist.broadcast(ring, 0)  # all ranks take one ring, also where the answer draws lots
    return [(rank, node) for rank, node in ring.tolist()]


def pair_rates(worker: Worker) -> torch.Tensor:
    """Return GB/s from each rank to each other one, a copy at a time; 0 from a rank to itself. Shape (ranks, ranks)."""
    rates = torch.zeros(worker.gpus, worker.gpus, dtype=torch.float64)
    for source, target in itertools.permutations(range(worker.gpus), 2):
        is_sender = worker.rank == source
        if is_sender or (worker.rank == target and worker.device.type == "cpu"):
            copy, _ = _hop(worker, target, None) if is_sender else _hop(worker, None, source)
            timings = [*worker.time(copy, warm_ups=1, repeats=_PAIR_REPEATS)]
            if is_sender:
                rates[source, target] = worker.state.nbytes / median(timing.seconds for timing in timings[1:]) / 1e9
        worker.barrier()
    dist.all_reduce(rates)
    return rates


def send_around(worker: Worker, ring: Ring) -> None:
    """All ranks send their buffers to the next one simultaneously, then fill them from the host; a row per repeat."""
    order = [rank for rank, _ in ring]
    at = order.index(worker.rank)
    copy, arrived = _hop(worker, order[(at + 1) % len(order)], order[at - 1])
    timings = [*worker.time(copy, before=worker.barrier)]
    status = "ok" if arrived() else "wrong bytes"
    host_rates = _fill_from_host(worker, ring[at][1]) if worker.device.type == "cuda" else [None] * len(timings)
    for timing, host_rate in zip(timings, host_rates, strict=True):
        worker.record(
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            status=status,
            hop=f"{worker.rank} → {order[(at + 1) % len(order)]}",
            numa=ring[at][1],
            gb_per_s=worker.state.nbytes / timing.seconds / 1e9,
            host_gb_per_s=host_rate,
        )


def _hop(worker: Worker, target: int | None, source: int | None) -> tuple[Callable[[], Any], Callable[[], bool]]:
    """Return what sends this rank's buffer to `target` and takes the one of `source`, and what looks at the bytes."""
    own = worker.state
    received = torch.zeros_like(own, device=f"cuda:{target}" if own.is_cuda and target is not None else own.device)
    if (
        own.is_cuda or target == worker.rank
    ):  # the sender copies into a buffer on the next GPU, here that of a ring of one
        return lambda: received.copy_(own, non_blocking=True), lambda: bool((received == worker.rank + 1).all())

    def exchange() -> None:
        sent = None if target is None else dist.isend(own, target)
        if source is not None:
            dist.recv(received, source)
        if sent is not None:
            sent.wait()

    return exchange, lambda: source is None or bool((received == source + 1).all())


def _fill_from_host(worker: Worker, numa: int) -> list[float]:
    """Return GB/s of copies from pinned memory of a NUMA node into this rank's GPU, all ranks simultaneously."""
    with on_numa_node(numa):
        host = torch.full(worker.state.shape, worker.rank + 1.0, pin_memory=True)
    timings = worker.time(lambda: worker.state.copy_(host, non_blocking=True), before=worker.barrier)
    return [host.nbytes / timing.seconds / 1e9 for timing in timings]
