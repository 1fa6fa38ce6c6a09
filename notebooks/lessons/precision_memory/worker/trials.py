"""Training loops that all train, with one thing in each that holds memory."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from labkit.engine.worker import Worker
from labkit.worker.allocations import MIB, Meter
from lessons.precision_memory.theory.levers import MICRO_BATCHES
from lessons.precision_memory.worker.memory import adamw, batch, model_of
from lessons.precision_memory.worker.numbers import precision_context


class Loop:
    """Gradient accumulation over micro-batches under autocast, with a metric; this one is right."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        self.worker, self.precision = worker, point.precision
        self.model = model_of(worker, point)
        self.optimizer = adamw(self.model.parameters(), "fused")
        self.batches = [batch(worker.plan, point.seed + at, worker.device) for at in range(MICRO_BATCHES)]
        self.metrics: list[Any] = []
        self.logits: Any = None
        self.model.head.register_forward_hook(self.see)

    def see(self, _module: Any, _inputs: Any, logits: torch.Tensor) -> None:
        """Keep the logits until the metric is computed."""
        self.logits = logits

    def measured(self) -> Any:
        """Return the metric, as a number: the entropy of the predicted words."""
        with torch.no_grad():
            return self.entropy().item()

    def entropy(self) -> torch.Tensor:
        """Return the mean entropy of the predictions, and forget the logits."""
        logits, self.logits = self.logits.float(), None
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()

    def around_forward(self) -> Any:
        return precision_context(self.worker.device, self.precision)

    def around_step(self) -> Any:
        return nullcontext()

    def step(self) -> int:
        """Run one step; return the bytes that are held at the end of backward."""
        with self.around_step():
            self.gradients()
            held = self.meter.held()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return held

    def gradients(self) -> None:
        """Run forward and backward of each micro-batch."""
        for tokens, targets in self.batches:
            self.loss(tokens, targets).backward()

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return a micro-batch's part of the loss, and note the metric."""
        with self.around_forward():
            loss = self.model(tokens, targets) / MICRO_BATCHES
            self.metrics.append(self.measured())
        return loss

    meter: Meter


class ListOfLosses(Loop):
    """Sums the losses of all micro-batches before one backward."""

    def gradients(self) -> None:
        losses = [self.loss(tokens, targets) for tokens, targets in self.batches]
        torch.stack(losses).sum().backward()


class KeptByHook(Loop):
    """Appends each block's output to a list."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        super().__init__(worker, point)
        self.seen: list[Any] = []
        for block in self.model.blocks:
            block.register_forward_hook(lambda _module, _inputs, output: self.seen.append(output))


class AutocastAroundBackward(Loop):
    """Opens autocast for the whole step."""

    def around_step(self) -> Any:
        return precision_context(self.worker.device, self.precision)


class MetricKeepsGraph(Loop):
    """Collects the metric as a tensor of the graph."""

    def measured(self) -> Any:
        return self.entropy()


VARIANTS = {
    "right": Loop,
    "list_of_losses": ListOfLosses,
    "kept_by_hook": KeptByHook,
    "autocast_around_backward": AutocastAroundBackward,
    "metric_keeps_graph": MetricKeepsGraph,
}


def attempt(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row (entry="trial"): the last step's peak, what is held at the end of its backward, growth a step."""
    with Meter(worker) as meter:
        loop = VARIANTS[point.variant](worker, point)
        loop.meter = meter
        after, held = 0, []
        for _ in range(worker.plan.steps):
            meter.reset()
            after = loop.step()
            held.append(meter.held())
        sizes = {
            "peak_mib": meter.peak() / MIB,
            "after_backward_mib": after / MIB,
            "growth_mib": (held[-1] - held[1]) / MIB / (len(held) - 2),
        }
        worker.record(entry="trial", **sizes)
