"""Loss scaling: gradients by exponent, and a training whose scale goes up until something overflows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from labkit.engine.worker import Worker
from lessons.precision_memory.worker.memory import batch, model_of
from lessons.precision_memory.worker.numbers import precision_context

_LOWEST = -60  # exponents below are counted together
_LEARNING_RATE = 3e-4


class Scaler:
    """Loss scaling: the scale doubles after `interval` good steps; an overflow halves it and skips the update."""

    def __init__(self, scale: float, interval: int):
        self.scale, self.interval, self.good_steps = scale, interval, 0

    def backward(self, loss: torch.Tensor) -> None:
        (loss * self.scale).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update the weights, unless a gradient is infinite or NaN; return whether the update was skipped."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        gradients = [weight.grad.div_(self.scale) for weight in weights if weight.grad is not None]
        skipped = not all(gradient.isfinite().all() for gradient in gradients)
        self.good_steps = 0 if skipped else self.good_steps + 1
        if skipped:
            self.scale /= 2
        else:
            optimizer.step()
        if self.good_steps == self.interval:
            self.scale, self.good_steps = 2 * self.scale, 0
        return skipped


class TorchScaler:
    """torch's GradScaler with the methods of Scaler; not enabled, it scales nothing."""

    def __init__(self, scale: float, interval: int, device: torch.device, enabled: bool):
        growth = {"init_scale": scale, "growth_interval": interval}
        self.scaler = torch.amp.GradScaler(device.type, enabled=enabled, **growth)

    @property
    def scale(self) -> float:
        return self.scaler.get_scale()

    def backward(self, loss: torch.Tensor) -> None:
        self.scaler.scale(loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        before = self.scale
        self.scaler.step(optimizer)
        self.scaler.update()
        return self.scale < before


def train_scaled(worker: Worker, point: SimpleNamespace) -> None:
    """Train the model in the point's way; append a row a step and, in float32, the gradients' histogram.

    Rows: entry="scaled step" (step, loss, scale, skipped, zero_share: of the weights' gradients that are exactly 0),
    entry="histogram" (of: "weights" or "activations"; exponent, gradients: how many have that power of two, and
    None as exponent for those that are 0).
    """
    precision, _, how = point.way.partition(" ")
    growth = worker.plan.first_scale, worker.plan.growth_interval
    scaler: Any = Scaler(*growth)
    if how != "scaled":
        scaler = TorchScaler(*growth, worker.device, enabled=how == "GradScaler")
    model = model_of(worker, point)
    tokens, targets = batch(worker.plan, point.seed, worker.device)
    if precision == "float32":
        _histograms(worker, model, tokens, targets)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    for step in range(worker.plan.steps):
        with precision_context(worker.device, precision):
            loss = model(tokens, targets)
        row = {"step": step, "scale": scaler.scale}
        scaler.backward(loss)
        row["zero_share"] = _zero_share(model)
        row["skipped"] = scaler.step(optimizer)
        optimizer.zero_grad()
        worker.record(entry="scaled step", loss=loss.item(), **row)


def _zero_share(model: nn.Module) -> float:
    """Return the share of the matrices' gradients that are exactly 0; the embedding's unused rows are left out."""
    all_gradients = [p.grad for name, p in model.named_parameters() if p.dim() > 1 and not name.startswith("embedding")]
    gradients = [gradient for gradient in all_gradients if gradient is not None]
    zero = sum(int((gradient == 0).sum()) for gradient in gradients)
    return zero / sum(gradient.numel() for gradient in gradients)


def _histograms(worker: Worker, model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> None:
    """Append how many gradients have which exponent: of the weights, and of the layers' outputs."""
    counts = torch.zeros(_SPAN, dtype=torch.int64, device=worker.device)
    hooks = []

    def note(gradient: torch.Tensor) -> None:
        counts.add_(_exponents(gradient))

    def watch(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        output.register_hook(note)

    for module in model.modules():
        if isinstance(module, nn.Linear):
            hooks.append(module.register_forward_hook(watch))
    model(tokens, targets).backward()
    for hook in hooks:
        hook.remove()
    weights = torch.zeros_like(counts)
    for weight in (p for name, p in model.named_parameters() if not name.startswith("embedding")):
        if weight.grad is not None:
            weights += _exponents(weight.grad)
    model.zero_grad()
    for of, bins in (("activations", counts), ("weights", weights)):
        for place, number in enumerate(bins.tolist()):
            if number:
                exponent = None if place == 0 else place - 1 + _LOWEST
                worker.record(entry="histogram", of=of, exponent=exponent, gradients=number)


_SPAN = 2 - _LOWEST + 40


def _exponents(values: torch.Tensor) -> torch.Tensor:
    """Return how many values have each power of two, from _LOWEST up; in front, how many are 0."""
    _, power = torch.frexp(values.detach().float().flatten())
    place = (power - 1 - _LOWEST).clamp(0, _SPAN - 2) + 1
    place = torch.where(values.detach().flatten() == 0, torch.zeros_like(place), place)
    return torch.bincount(place, minlength=_SPAN)
