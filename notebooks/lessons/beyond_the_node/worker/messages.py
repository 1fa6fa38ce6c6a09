"""All-reduces inside a node, between nodes, over all ranks, and in two levels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.theory.sizes import KIB
from lessons.beyond_the_node.worker.link import sent_bytes
from lessons.beyond_the_node.worker.two_levels import hierarchical_all_reduce


def time_all_reduce(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per call and rank that takes part: seconds, and what its node has sent meanwhile.

    Each call sums tensors of ones, so that every element must come out as the number of ranks.
    """
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer versions of torch have other names
    groups = worker.state
    taking_part = point.place != "between" or worker.local_rank == 0
    group = {"inside": groups.inside, "between": groups.between}.get(point.place)
    if not taking_part:
        worker.barrier()
        worker.barrier()
        return
    elements = point.kib * KIB // 4 // groups.per_node * groups.per_node  # whole shares, for any number of ranks
    tensor = torch.ones(elements, device=worker.device)
    work = _call(worker, point.place, tensor)
    fence = torch.ones(1, device=worker.device)
    counted, timings = [], []

    def begin() -> None:
        tensor.fill_(1)
        dist.all_reduce(fence.fill_(1), group=group)
        worker.synchronize()
        counted.append(sent_bytes())

    worker.barrier()
    timings += worker.time(work, before=begin)
    right = {"inside": groups.per_node, "between": groups.nodes}.get(point.place, worker.gpus)
    status = "ok" if bool((tensor == right).all()) else "wrong result"
    worker.barrier()
    counted.append(sent_bytes())
    for timing, (before, after) in zip(timings, pairwise(counted), strict=True):
        sent = after - before if worker.local_rank == 0 else None
        worker.record(
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            seconds=timing.seconds,
            whole_bytes=4 * elements,
            sent_bytes=sent,
            status=status,
        )


def _call(worker: Worker, place: str, tensor: torch.Tensor) -> Callable[[], Any]:
    """Return the call that is timed."""
    groups = worker.state
    if place in ("hierarchical", "yours"):
        all_reduce = hierarchical_all_reduce if place == "hierarchical" else _answer(worker.plan.yours)
        return lambda: all_reduce(tensor, groups.inside, groups.between, groups.per_node)
    group = {"inside": groups.inside, "between": groups.between}.get(place)
    return lambda: dist.all_reduce(tensor, group=group)


@cache
def _answer(file: str) -> Callable[..., Any]:
    return load_function(Path(file), "hierarchical_all_reduce")
