"""Lab 14, what the workers do: all-reduces and training steps over two nodes, whose link they shape first."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from lessons.beyond_the_node.plan import LocalSteps, Messages
from lessons.beyond_the_node.theory import mesh_groups
from lessons.beyond_the_node.worker.link import set_link_rate
from lessons.beyond_the_node.worker.messages import time_all_reduce
from lessons.beyond_the_node.worker.training import time_steps, train_apart


def prepare(worker: Worker) -> SimpleNamespace:
    """Make the groups of ranks inside each node, and between nodes; return those that this rank belongs to."""
    if worker.nodes < 2:
        raise RuntimeError("this lab measures between nodes: launch(plan, nodes=2)")
    if worker.device.type == "cpu":
        torch.set_num_threads(1)  # the ranks share the cores
    per_node = worker.gpus // worker.nodes
    levels = []
    for ranks_of_groups in mesh_groups(worker.nodes, per_node):
        groups = {tuple(ranks): dist.new_group(list(ranks)) for ranks in ranks_of_groups}  # all ranks make all groups
        levels.append(next(group for ranks, group in groups.items() if worker.rank in ranks))
    return SimpleNamespace(inside=levels[0], between=levels[1], nodes=worker.nodes, per_node=per_node)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point, with the link at its rate."""
    set_link_rate(worker, point.link_mbit)
    if isinstance(worker.plan, Messages):
        time_all_reduce(worker, point)
    elif isinstance(worker.plan, LocalSteps):
        train_apart(worker, point)
    else:
        time_steps(worker, point)
    gc.collect()
