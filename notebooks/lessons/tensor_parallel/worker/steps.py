"""What lab 16's workers do: split one transformer, time its steps, count what they keep, hold and send."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from labkit.engine.called_function import load_functions
from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.counting import SavedTensors
from labkit.worker.settings import prepare as settle
from labkit.worker.settings import release_memory, set_precision
from labkit.worker.stepping import Stepping, record_held_and_sent, time_stepping
from labkit.worker.strategies import wrap
from labkit.worker.transformer import Transformer
from lessons.tensor_parallel.plan import Equality, Steps
from lessons.tensor_parallel.worker.equality import compare
from lessons.tensor_parallel.worker.layers import Ranks
from lessons.tensor_parallel.worker.model import ParallelTransformer, rotated
from lessons.tensor_parallel.worker.tried import ROW, yours


def prepare(worker: Worker) -> None:
    """Set threads; every point builds its own model, for splitting takes it apart."""
    settle(worker)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point: steps of a small model beside one process, or steps of the transformer."""
    set_precision("float32")
    if isinstance(worker.plan, Equality):
        compare(worker, point)
        return
    stepping = training(worker, point)
    time_stepping(worker, stepping)
    if isinstance(worker.plan, Steps) and point.seed == worker.plan.seeds[0] and "silent" not in point.strategy:
        with (saved := SavedTensors()):
            stepping.forward()
        stepping.backward()  # what hooks have kept is let go by backward alone
        stepping.update()
        record_held_and_sent(worker, stepping, activations_mib=saved.bytes / MIB)
    del stepping
    release_memory(worker)


def training(worker: Worker, point: SimpleNamespace) -> Stepping:
    """Return the transformer under the point's strategy, ready to train.

    Replicas and shards take the rank's samples; who splits layers takes those of all ranks.
    """
    plan = worker.plan
    torch.manual_seed(0)
    sizes = plan.sizes(point.hidden)
    with worker.device:
        model = Transformer(
            plan.vocabulary, plan.sequence, sizes["hidden"], sizes["inner"], plan.layers, sizes["heads"]
        )
    if worker.device.type == "cuda":
        model.to(torch.bfloat16)
    data = point.strategy in ("ddp", "fsdp")
    samples, seed = (plan.samples, worker.rank) if data else (plan.samples * worker.gpus, 0)
    split = split_by(model, worker, point.strategy)
    return Stepping(worker, split, split.parameters(), samples=samples, seed=1000 * point.seed + seed)


def split_by(model: Transformer, worker: Worker, strategy: str) -> nn.Module:
    """Return the model under a strategy."""
    if strategy in ("ddp", "fsdp"):
        return wrap(model, {"fsdp": "fsdp_full"}.get(strategy, strategy), None, worker.device)
    if strategy == "torch":
        return split_by_torch(model, worker)
    kind, _, silent = strategy.partition("_")
    options: Any = {}
    if strategy == "yours":
        options = yours(load_functions(Path(worker.plan.row), *ROW))
    ranks = options.pop("ranks", Ranks)(None, kind == "sequence", bool(silent))
    return ParallelTransformer(model, ranks, rotated(model.turn), **options)


def split_by_torch(model: Transformer, worker: Worker) -> nn.Module:
    """Return the model with its blocks' matrices split by torch's styles; embedding and head stay whole."""
    mesh = DeviceMesh(worker.device.type, range(worker.gpus))
    column, row = ("query", "key", "value", "gate", "up"), ("out", "down")
    plan: Any = {name: ColwiseParallel() for name in column} | {name: RowwiseParallel() for name in row}
    blocks: Any = model.blocks
    for block in blocks:
        parallelize_module(block, mesh, plan)
        block.heads //= worker.gpus
    return model
