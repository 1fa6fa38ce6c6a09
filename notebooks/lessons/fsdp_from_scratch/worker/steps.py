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
from labkit.theory.sizes import MIB
from labkit.worker.allocations import Meter, record_allocations
from labkit.worker.clocks import Tape, fence
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.settings import prepare as settle
from labkit.worker.settings import release_memory, set_precision
from labkit.worker.strategies import held_bytes, wrap
from labkit.worker.transformer import Block, seeded_transformer
from lessons.fsdp_from_scratch.plan import Equality, Timeline
from lessons.fsdp_from_scratch.worker.equality import compare
from lessons.fsdp_from_scratch.worker.tried import BACKWARD, yours
from lessons.fsdp_from_scratch.worker.units import FullySharded

_LEARNING_RATE = 1e-4


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
        time_point(worker, point)
    release_memory(worker)


class Training:
    """The transformer under a strategy, its fused AdamW, and this rank's samples."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        plan = worker.plan
        self.model = shard(seeded_transformer(plan, 0, worker.device), worker, point)
        self.weights = getattr(self.model, "shards", None) or [*self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.weights, lr=_LEARNING_RATE, fused=True)
        autocast = point.precision == "bfloat16" and point.strategy == "ddp"
        self.autocast = torch.autocast(worker.device.type, torch.bfloat16, enabled=autocast)
        generator = torch.Generator().manual_seed(1000 * point.seed + worker.rank)
        tokens = torch.randint(plan.vocabulary, (point.samples, plan.sequence + 1), generator=generator)
        self.batch = [part.to(worker.device) for part in (tokens[:, :-1], tokens[:, 1:])]
        self.loss: Any = None
        self.tape, self.moments = Tape(worker.device), []  # a step's start, the end of its gradients, its end

    def forward(self) -> None:
        with self.autocast:
            self.loss = self.model(*self.batch)

    def backward(self) -> None:
        self.loss.backward()
        if isinstance(self.model, FullySharded):
            self.model.finish()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.moments = [self.tape.now()]
        self.forward()
        self.backward()
        self.moments.append(self.tape.now())
        self.update()

    def gradients_ms(self) -> float:
        """Return how long the last step took without its update; call it when the device is idle."""
        start, end = self.moments
        return 1e3 * (end - start) if isinstance(start, float) else start.elapsed_time(end)


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


def time_point(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per step: its time and memory; then what the shards hold, and what one step sends."""
    training, gpu = Training(worker, point), worker.device.type == "cuda"
    for timing in worker.time(training.step, before=lambda: fence(None)):
        if gpu and timing.iteration == worker.plan.warm_ups - 1:
            torch.cuda.reset_peak_memory_stats()
        peak = {"peak_mib": torch.cuda.max_memory_allocated() / MIB} if gpu else {}
        worker.record(
            entry="step",
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            step_ms=1e3 * timing.seconds,
            gradients_ms=training.gradients_ms(),
            **peak,
        )
    if point.seed == worker.plan.seeds[0]:
        record_ledgers(worker, training)


def record_ledgers(worker: Worker, training: Training) -> None:
    """Append entry="memory", what the rank's tensors hold, and entry="traffic", the calls and bytes of one step."""
    with CollectiveCounter() as sent:
        training.forward()
        training.backward()
    gradients = held_bytes([weight.grad for weight in training.weights if weight.grad is not None])
    training.update()
    states = [value for state in training.optimizer.state.values() for value in state.values() if value.dim()]
    held = {"parameters": held_bytes(training.weights), "gradients": gradients, "optimizer": held_bytes(states)}
    worker.record(entry="memory", **{f"{item}_mib": size / MIB for item, size in held.items()})
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
    dist.barrier()


def record_timeline(worker: Worker, point: SimpleNamespace) -> None:
    """Append the memory of one steady step on rank 0, allocation by allocation."""
    with Meter(worker) as meter:
        training = Training(worker, point)
        for _ in range(worker.plan.warm_ups):
            training.step()
        phases = [("forward", training.forward), ("backward", training.backward), ("optimizer", training.update)]
        if worker.rank == 0:
            record_allocations(worker, phases, 1, meter=meter)
        else:
            training.step()
        worker.barrier()
