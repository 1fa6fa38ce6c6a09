"""Methods that somebody wrote, in their place in the classes, tried on some ranks: what they leave, hold and send.

Imports nothing of labkit but a counter: it also runs where an answer is graded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from labkit.worker.collectives import ListCounter
from lessons.fsdp_from_scratch.worker.probe import backward_on_rank, samples_of, sharded_probe
from lessons.fsdp_from_scratch.worker.units import FullySharded, FullyShardedUnit

BACKWARD = ("backward_begins", "backward_ends")
_STEPS = 2
_LATE_S = 0.05  # what the others have sent before the last rank begins has not arrived


def yours(methods: dict[str, Callable]) -> dict[str, type]:
    """Return the classes, as `sharded_probe` takes them, with these methods in place of theirs."""
    if "clip" in methods:
        return {"sharded": type("Yours", (FullySharded,), methods)}
    return {"unit": type("Yours", (FullyShardedUnit,), methods)}


def drive(answer: Any, world: SimpleNamespace, ranks: int, hole: str, case: str, seed: int, most: float) -> dict:
    """Return what two steps with the answer leave on this rank.

    `gradients`: of each step, each trained shard's numbers, clipped to `most` where the hole is "clip"; `lengths` are
    what it then returned. `calls`: of each step, names and bytes of the collectives of the hole. `gathered`: whether
    each unit was whole whenever its backward began. `most_whole`: units that were whole together in backward.
    """
    classes = yours(answer if isinstance(answer, dict) else {hole: answer})
    seen = SimpleNamespace(gathered=True, most_whole=0, units=[])

    class Watched(classes.get("unit", FullyShardedUnit)):
        def backward_reaches(self, gradient: Any) -> None:
            self.in_backward = True
            self.backward_begins()
            if not all(_is_whole(flat) and flat.work is None for flat in self.flats):  # torch would read no memory
                seen.gathered = False
                self.gather()
            seen.most_whole = max(seen.most_whole, sum(any(map(_is_whole, unit.flats)) for unit in seen.units))
            self.sharded.prefetch(self, ahead=-1)

    model = sharded_probe(case, world.rank, seed, group=world.group, **classes | {"unit": Watched})
    seen.units = [unit for unit in model.units if unit.flats]
    optimizer = torch.optim.SGD(model.shards, lr=0.5)
    gradients, lengths, calls = [], [], []
    for step in range(_STEPS):
        time.sleep(_LATE_S * (world.rank == ranks - 1))
        with ListCounter() as sent:
            backward_on_rank(model, case, samples_of(world.rank, seed, step))
            if hole == "clip":
                sent.each.clear()
                lengths.append(float(model.clip(most)))
        calls.append(sent.each)
        trained = [shard for shard in model.shards if shard.requires_grad]
        gradients.append([None if shard.grad is None else shard.grad.double().tolist() for shard in trained])
        optimizer.step()
        optimizer.zero_grad()
    left = {"gathered": seen.gathered, "most_whole": seen.most_whole}
    return {"gradients": gradients, "lengths": lengths, "calls": calls, **left}


def _is_whole(flat: Any) -> bool:
    return flat.whole.untyped_storage().nbytes() > 0
