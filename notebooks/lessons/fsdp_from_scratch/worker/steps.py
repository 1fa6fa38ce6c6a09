"""What lab 15's workers do: shard one transformer, time its steps, count what they hold and send."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from labkit.engine.called_function import load_functions
from labkit.engine.worker import Worker
from labkit.worker.allocations import Meter, record_allocations
from labkit.worker.settings import prepare as settle
from labkit.worker.settings import release_memory, set_precision
from labkit.worker.stepping import Stepping, record_held_and_sent, time_stepping
from labkit.worker.strategies import wrap
from labkit.worker.transformer import Block, seeded_transformer
from lessons.fsdp_from_scratch.plan import Equality, Timeline
from lessons.fsdp_from_scratch.worker.equality import compare
from lessons.fsdp_from_scratch.worker.tried import BACKWARD, yours
from lessons.fsdp_from_scratch.worker.units import FullySharded


def prepare(worker: Worker) -> Any:
    """Return a group of this rank alone. Every point builds its own model, for sharding takes it apart."""
    settle(worker)
    return dist.new_subgroups(1)[0]


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point: steps of a small model beside one process, or steps of the transformer."""
    set_precision("float32")
    if isinstance(worker.plan, Equality):
        compare(worker, point)
        return
    if isinstance(worker.plan, Timeline):
        record_timeline(worker, point)
    else:
        stepping = training(worker, point)
        time_stepping(worker, stepping)
        if point.seed == worker.plan.seeds[0]:
            record_held_and_sent(worker, stepping)
        del stepping
    release_memory(worker)


def training(worker: Worker, point: SimpleNamespace) -> Stepping:
    """Return the transformer under the point's strategy, ready to train on this rank's samples."""
    model = shard(seeded_transformer(worker.plan, 0, worker.device), worker, point)
    autocast = point.precision == "bfloat16" and point.strategy == "ddp"
    seed = 1000 * point.seed + worker.rank
    weights = getattr(model, "shards", None) or model.parameters()
    return Stepping(worker, model, weights, samples=point.samples, seed=seed, autocast=autocast)


def is_unit(unit: str):
    """Return which modules of the transformer are units: matrices inside its blocks, blocks, or none."""
    kind = {"layer": nn.Linear, "block": Block, "model": ()}[unit]
    return lambda module: isinstance(module, kind)


def shard(model: Any, worker: Worker, point: SimpleNamespace) -> nn.Module:
    """Return the model under the point's strategy."""
    if point.strategy == "ddp":
        return wrap(model, point.strategy, None, worker.device)
    precision = torch.bfloat16 if point.precision == "bfloat16" else None
    is_one, blocks = is_unit(point.unit), model.blocks
    model.turn = model.turn.to(precision)  # None: as it is
    if point.strategy == "torch":
        mixed = MixedPrecisionPolicy(param_dtype=precision)
        for module in blocks.modules():
            if is_one(module):
                fully_shard(module, mp_policy=mixed)
        fully_shard(model, mp_policy=mixed)
        return model
    written: Any = yours(load_functions(Path(worker.plan.backward), *BACKWARD)) if point.strategy == "yours" else {}
    inside = {*blocks.modules()}  # the head is a matrix, too, and the outermost unit's
    options: Any = {"precision": precision, "prefetch": point.prefetch, "release": getattr(point, "release", True)}
    group = worker.state if point.strategy == "alone" else None
    return FullySharded(model, lambda module: module in inside and is_one(module), group, **options, **written)


def record_timeline(worker: Worker, point: SimpleNamespace) -> None:
    """Append the memory of one steady step on rank 0, allocation by allocation."""
    with Meter(worker) as meter:
        stepping = training(worker, point)
        for _ in range(worker.plan.warm_ups):
            stepping.step()
        phases = [("forward", stepping.forward), ("backward", stepping.backward), ("optimizer", stepping.update)]
        if worker.rank == 0:
            record_allocations(worker, phases, 1, meter=meter)
        else:
            stepping.step()
        worker.barrier()
