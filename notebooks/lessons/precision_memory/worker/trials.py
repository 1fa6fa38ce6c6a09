"""The loops of bugs.py, each run for some steps while its memory is watched."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.allocations import Meter
from lessons.precision_memory import bugs
from lessons.precision_memory.plan import MICRO_BATCHES
from lessons.precision_memory.worker.memory import adamw, batch, model_of
from lessons.precision_memory.worker.numbers import precision_context


class StepMeter:
    """Measures a loop's steps: what is held after each, and at the end of the last backward; the last step's peak."""

    def __init__(self, meter: Meter, steps: int):
        self.meter, self.number, self.after_backward = meter, steps, 0
        self.held: list[int] = []

    def steps(self) -> Iterator[int]:
        for number in range(self.number):
            self.meter.reset()
            yield number
            self.held.append(self.meter.held_bytes())

    def backward_done(self) -> None:
        self.after_backward = self.meter.held_bytes()


class Entropy:
    """The mean entropy of the model's last predictions; it keeps their logits until it is asked."""

    def __init__(self, head: torch.nn.Module):
        self.logits: Any = None
        head.register_forward_hook(self._see)

    def _see(self, _module: Any, _inputs: Any, logits: torch.Tensor) -> None:
        self.logits = logits

    def __call__(self) -> torch.Tensor:
        logits, self.logits = self.logits.float(), None
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()


def try_variant(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row (entry="trial"): the last step's peak, what is held at the end of its backward, growth a step."""
    with Meter(worker) as meter:
        model = model_of(worker, point)
        batches = [batch(worker.plan, point.seed + number, worker.device) for number in range(MICRO_BATCHES)]
        autocast = functools.partial(precision_context, worker.device, point.precision)
        watch, optimizer = StepMeter(meter, worker.plan.steps), adamw(model.parameters(), "fused")
        getattr(bugs, point.variant)(model, batches, optimizer, autocast, Entropy(model.head), watch)
        sizes = {
            "peak_mib": meter.peak_bytes() / MIB,
            "after_backward_mib": watch.after_backward / MIB,
            "growth_mib": (watch.held[-1] - watch.held[1]) / MIB / (len(watch.held) - 2),
        }
    worker.record(entry="trial", **sizes)
