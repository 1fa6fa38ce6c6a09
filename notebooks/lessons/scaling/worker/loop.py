"""A training step of ResNet-18, and the moments between its parts."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from labkit.engine.worker import Worker
from labkit.theory.cifar10 import CLASSES
from labkit.worker.clocks import Tape
from labkit.worker.strategies import after_gradient, wrap
from lessons.scaling.worker.images import normalised
from lessons.scaling.worker.resnet import ResNet

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
PARTS: tuple[str, ...] = ("input", "copy", "forward", "backward", "exposed", "optimizer")


class EpochLoop:
    """A network, under DistributedDataParallel where several ranks train it, with its optimizer.

    While `watched`, a step notes a moment after each of PARTS: on a GPU as an event in its stream, so that a part is
    what the stream did or waited for. "backward" ends with the last gradient, "exposed" when the all-reduce is over.
    """

    def __init__(self, worker: Worker, point: SimpleNamespace, *, alone: bool = False):
        self.point, self.device, self.tape = point, worker.device, Tape(worker.device)
        self.watched, self.moments = False, []
        group: dist.ProcessGroup | None = worker.state.groups[point.ranks]
        torch.manual_seed(point.seed)
        model: Any = ResNet(worker.plan.width, worker.plan.blocks, CLASSES, point.precision).to(worker.device)
        if point.precision == "autocast":
            model = model.to(memory_format=torch.channels_last)
        if getattr(point, "sync_bn", False):
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model, group)
        self.model = model
        after_gradient(model.conv1.weight, self, lambda loop: loop.note("backward"))
        exchanged = not alone and (point.ranks > 1 or getattr(point, "strategy", "") == "ddp")
        self.wrapped: Any = wrap(model, "ddp" if exchanged else "single", group, worker.device)
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, MOMENTUM, weight_decay=WEIGHT_DECAY)

    def note(self, part: str) -> None:
        """Note the moment at which a part ends."""
        if self.watched:
            self.moments.append((part, self.tape.now()))

    def begin(self) -> None:
        """Begin to watch, at this moment."""
        self.watched, self.moments = True, [("", self.tape.now())]

    def ended(self) -> dict[str, float]:
        """Stop watching; return the ms that each part took, all steps together. Call it when the device is idle."""
        self.watched, totals = False, dict.fromkeys(PARTS, 0.0)
        for (_, start), (part, end) in pairwise(self.moments):
            totals[part] += 1e3 * (end - start) if isinstance(end, float) else start.elapsed_time(end)
        return totals

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one step on a batch of bytes; return the mean loss and the number of right answers, on the device."""
        self.note("input")
        images, labels = self.ready(pixels, labels)
        self.note("copy")
        logits, loss = self.forward(images, labels)
        right = (logits.argmax(1) == labels).sum()
        self.note("forward")
        loss.backward()
        self.note("exposed")
        self.update()
        self.note("optimizer")
        return loss.detach(), right

    def ready(self, pixels: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a batch as float32 on the device."""
        pixels, labels = (part.to(self.device, non_blocking=True) for part in (pixels, labels))
        return normalised(pixels), labels

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and their mean cross-entropy."""
        if self.point.precision == "autocast":
            images = images.to(memory_format=torch.channels_last)
        logits = self.wrapped(images)
        return logits, functional.cross_entropy(logits, labels)

    def gradients(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Run forward and backward of a batch that is ready."""
        self.forward(images, labels)[1].backward()
        self.note("exposed")

    def update(self) -> None:
        """Have the optimizer step and drop the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
