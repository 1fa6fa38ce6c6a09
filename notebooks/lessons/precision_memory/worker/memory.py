"""The course's transformer on one GPU: what each phase of a step holds, who allocated it, and how long it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.allocations import Meter, record_allocations
from labkit.worker.counting import SavedTensors
from labkit.worker.transformer import Transformer
from lessons.precision_memory.worker.numbers import precision_context

SIZES = ("vocabulary", "sequence", "hidden", "inner", "layers", "heads")
_LEARNING_RATE = 1e-4


def model_of(worker: Worker, point: SimpleNamespace) -> Transformer:
    """Return the transformer with the seed's weights; the point's sizes come before the plan's."""
    asked: dict[str, Any] = {name: getattr(point, name, getattr(worker.plan, name)) for name in SIZES}
    torch.manual_seed(point.seed)
    with worker.device:
        return Transformer(**asked)


def batch(plan: Any, seed: int, device: torch.device, **sizes: int) -> torch.Tensor:
    """Return random tokens and targets as one tensor (2, samples, sequence)."""
    asked: dict[str, Any] = {name: getattr(plan, name) for name in ("samples", "sequence", "vocabulary")} | sizes
    generator = torch.Generator(device).manual_seed(seed)
    shape = (2, asked["samples"], asked["sequence"])
    return torch.randint(asked["vocabulary"], shape, generator=generator, device=device)


def adamw(parameters: Any, update: str) -> torch.optim.Optimizer:
    """Return AdamW with its kernels: "fused" (one), "foreach" (torch's default on a GPU) or "for-loop"."""
    return torch.optim.AdamW(parameters, lr=_LEARNING_RATE, fused=update == "fused", foreach=update == "foreach")


class Training:
    """The model, its optimizer and one batch; a step is forward under the point's precision, backward and update."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        self.worker, self.precision = worker, point.precision
        self.model = model_of(worker, point)
        sizes = {name: getattr(point, name) for name in ("samples", "sequence", "vocabulary") if hasattr(point, name)}
        self.batch = batch(worker.plan, point.seed, worker.device, **sizes)
        self.optimizer = adamw(self.model.parameters(), point.update)
        self.losses: list[torch.Tensor] = []

    def forward(self) -> torch.Tensor:
        """Return the loss of the batch."""
        with precision_context(self.worker.device, self.precision):
            return self.model(*self.batch)

    def update(self) -> None:
        """Update the weights and let the gradients go."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> torch.Tensor:
        """Run one step and return its loss."""
        loss = self.forward()
        loss.backward()
        self.update()
        return loss.detach()

    def phases(self) -> list:
        """Return a step as named phases; the loss is kept between forward and backward."""
        return [
            ("forward", lambda: self.losses.append(self.forward())),
            ("backward", lambda: self.losses.pop().backward()),
            ("optimizer", self.update),
        ]


class KeptTensors(SavedTensors):
    """What forward keeps for backward: `bytes`, and of it `copies`, which have a weight's shape and fewer bits."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.shapes = {frozenset(weight.shape) for weight in model.parameters() if weight.dim() == 2}
        self.copied: dict[int, int] = {}

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        kept = super()._keep(tensor)
        whole = tensor if tensor._base is None else tensor._base  # a view stands for what it shows
        if whole.dim() == 2 and whole.dtype != torch.float32 and frozenset(whole.shape) in self.shapes:
            storage = tensor.untyped_storage()
            self.copied[storage.data_ptr()] = storage.nbytes()
        return kept

    @property
    def copies(self) -> int:
        return sum(self.copied.values())


def measure_memory(worker: Worker, point: SimpleNamespace) -> None:
    """Append the peak of each phase (entry="memory"), then what `held_bytes` finds (entry="counted")."""
    with Meter(worker) as meter:
        training = Training(worker, point)

        def without_gradients() -> None:
            with torch.no_grad():
                training.forward()

        works = {
            "no_grad": without_gradients,
            "forward": lambda: training.losses.append(training.forward()),
            "first step": training.step,
            "steady step": training.step,
        }
        for phase, work in works.items():
            meter.reset()
            work()
            worker.record(entry="memory", phase=phase, peak_mib=meter.peak_bytes() / MIB)
            training.losses.clear()
    worker.record(entry="counted", **{f"{name}_mib": size / MIB for name, size in held_bytes(training).items()})


def held_bytes(training: Training) -> dict[str, int]:
    """Return the bytes of everything that a training step holds, read off the tensors."""
    with (kept := KeptTensors(training.model)):
        loss = training.forward()
    activations = kept.bytes - kept.copies
    loss.backward()
    weights = list(training.model.parameters())
    states = [value for state in training.optimizer.state.values() for value in state.values()]
    return {
        "parameters": sum(weight.nbytes for weight in weights),
        "gradients": sum(weight.grad.nbytes for weight in weights if weight.grad is not None),
        "optimizer": sum(state.nbytes for state in states if state.dim()),  # the count of steps is a number
        "activations": activations,
        "copies": kept.copies,
    }


def measure_peak(worker: Worker, point: SimpleNamespace) -> None:
    """Append the peak of the point's phase: "first" step or "steady" step."""
    with Meter(worker) as meter:
        training = Training(worker, point)
        if point.phase == "steady":
            training.step()
            training.step()
        meter.reset()
        training.step()
        worker.record(entry="memory", peak_mib=meter.peak_bytes() / MIB)


def record_step_allocations(worker: Worker, point: SimpleNamespace) -> None:
    """Append the allocations of the first step and of a steady one, moment by moment, and the largest by line."""
    with Meter(worker) as meter:
        training = Training(worker, point)
        record_allocations(worker, training.phases(), iterations=2, meter=meter, lines=True)
