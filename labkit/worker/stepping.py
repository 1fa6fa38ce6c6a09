"""A model that trains on random tokens, step by step: times of its parts, what its tensors hold, what a step sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.clocks import Tape, fence
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.strategies import held_bytes

_LEARNING_RATE = 1e-4


class Stepping:
    """A model, its fused AdamW over `weights`, and random tokens (samples, sequence).

    A model with a method `finish` is told when backward has ended. `autocast`: bfloat16 products.
    """

    def __init__(
        self,
        worker: Worker,
        model: nn.Module,
        weights: Iterable[nn.Parameter],
        *,
        samples: int,
        seed: int,
        autocast: bool = False,
    ):
        plan, self.model, self.weights = worker.plan, model, [*weights]
        # The fused kernel takes plain tensors or distributed ones, not both.
        kinds = [[each for each in self.weights if isinstance(each, DTensor) is kind] for kind in (True, False)]
        self.optimizer = torch.optim.AdamW([{"params": each} for each in kinds if each], lr=_LEARNING_RATE, fused=True)
        self.autocast = torch.autocast(worker.device.type, torch.bfloat16, enabled=autocast)
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(plan.vocabulary, (samples, plan.sequence + 1), generator=generator)
        self.batch = [part.to(worker.device) for part in (tokens[:, :-1], tokens[:, 1:])]
        self.loss: Any = None
        self.tape, self.moments = Tape(worker.device), []  # a step's start, the end of its gradients

    def forward(self) -> None:
        with self.autocast:
            self.loss = self.model(*self.batch)

    def backward(self) -> None:
        self.loss.backward()
        if finish := getattr(self.model, "finish", None):
            finish()

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


def time_stepping(worker: Worker, stepping: Stepping) -> None:
    """Append a row entry="step" per step: step_ms, gradients_ms and, on a GPU, peak_mib since the last warm-up."""
    gpu = worker.device.type == "cuda"
    for timing in worker.time(stepping.step, before=lambda: fence(None)):
        if gpu and timing.iteration == worker.plan.warm_ups - 1:
            torch.cuda.reset_peak_memory_stats()
        peak = {"peak_mib": torch.cuda.max_memory_allocated() / MIB} if gpu else {}
        worker.record(
            entry="step",
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            step_ms=1e3 * timing.seconds,
            gradients_ms=stepping.gradients_ms(),
            **peak,
        )


def record_held_and_sent(worker: Worker, stepping: Stepping, **more: Any) -> None:
    """Append entry="memory", what the rank's tensors hold, and entry="traffic", the calls and bytes of one step.

    `more` are further columns of the first.
    """
    with CollectiveCounter() as sent:
        stepping.forward()
        stepping.backward()
    gradients = held_bytes([weight.grad for weight in stepping.weights if weight.grad is not None])
    stepping.update()
    states = [value for state in stepping.optimizer.state.values() for value in state.values() if value.dim()]
    held = {"parameters": held_bytes(stepping.weights), "gradients": gradients, "optimizer": held_bytes(states)}
    worker.record(entry="memory", **{f"{item}_mib": size / MIB for item, size in held.items()}, **more)
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
    worker.barrier()
