"""An all-reduce that somebody wrote, tried on some ranks as if they were on nodes: what it leaves, and what it calls.

Imports nothing of labkit but what counts: it also runs where an answer is graded.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.worker.collectives import COLLECTIVE_NAMES, ListCounter

_LARGEST = 10**6  # of a value: float32 adds six of these without rounding
_LATE_S = 0.05  # what the others have sent before the last rank begins has not arrived
_WHOLE = {"_reduce_scatter_base_": 1, "_allgather_base_": 0}  # which argument is whole; the other one is a share


class LevelCounter(ListCounter):
    """Notes of every collective its group ("inside", "between"), its name, its whole tensor's bytes, whether it waits.

    Raises RuntimeError for a call over another group, in which some ranks may wait for ever, and ValueError where
    shares do not make up the whole, which gloo says in its own words.
    """

    def __init__(self, **groups: dist.ProcessGroup):
        super().__init__()
        self.groups = {group.group_name: (name, group.size()) for name, group in groups.items()}
        self.calls_of_groups: list[tuple[str, str, int, bool]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace != "c10d":
            return function(*args, **(kwargs or {}))
        operator = str(function.overloadpacket.__name__)
        call = COLLECTIVE_NAMES.get(operator, operator.strip("_"))
        group = next(arg for arg in args if isinstance(arg, torch.ScriptObject))
        name, size = self.groups.get(dist.ProcessGroup.unbox(group).group_name, ("", 0))
        if not name:
            raise RuntimeError(f"{call} is called over neither `inside` nor `between`: pass one of them as `group`")
        if operator in _WHOLE:
            whole, share = (args[place].numel() for place in (_WHOLE[operator], 1 - _WHOLE[operator]))
            if whole != share * size:
                raise ValueError(
                    f"{call} over `{name}`: {size} shares of {share} elements are not the {whole} elements"
                )
        counted = len(self.each)
        result = super().__torch_dispatch__(function, types, args, kwargs)
        waits = any(arg is False for arg in args)  # of async_op, whose default is left out
        self.calls_of_groups += [(name, *call, waits) for call in self.each[counted:]]
        return result


def drive(
    all_reduce: Callable, world: SimpleNamespace, ranks: int, per_node: int, elements: int, seed: int
) -> dict[str, Any]:
    """Return what the call does on this rank, of all on nodes of `per_node`.

    `start`, `sums` and `later`: the tensor's values before it, after it and some time after it; `calls`: see
    `LevelCounter`.
    """
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer versions of torch have other names
    nodes = [[*range(first, first + per_node)] for first in range(0, ranks, per_node)]
    inside, between = _group_of(world.rank, nodes), _group_of(world.rank, [*map(list, zip(*nodes, strict=True))])
    generator = torch.Generator().manual_seed(1000 * seed + world.rank)
    start = torch.randint(1, _LARGEST, (elements,), generator=generator).float()
    tensor = start.clone()
    time.sleep(_LATE_S * (world.rank == ranks - 1))
    with LevelCounter(inside=inside, between=between) as counter:
        all_reduce(tensor, inside, between, per_node)
    sums = tensor.tolist()
    time.sleep(2 * _LATE_S)
    return {"start": start.tolist(), "sums": sums, "later": tensor.tolist(), "calls": counter.calls_of_groups}


def _group_of(rank: int, members: list[list[int]]) -> Any:
    """Return the group that a rank is in; all ranks make all groups."""
    groups = [dist.new_group(ranks) for ranks in members]
    return next(group for group, ranks in zip(groups, members, strict=True) if rank in ranks)
