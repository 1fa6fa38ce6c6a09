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


def train_scaled(worker: Worker, point: SimpleNamespace) -> None:
    """Train the model in the point's way; append a row a step and, in float32, the gradients' histogram.

    Rows: entry="scaled step" (step, loss, scale, skipped, zero_share: of the weights' gradients that are exactly 0),
    entry="histogram" (of: "weights" or "activations"; exponent, gradients: how many have that power of two, and
    None as exponent for those that are 0).
    """
    precision, scaled = point.way.split()[0], point.way.endswith(" scaled")
    model = model_of(worker, point)
    tokens, targets = batch(worker.plan, point.seed, worker.device)
    if precision == "float32":
        _histograms(worker, model, tokens, targets)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    plan: Any = worker.plan
    growth = {"init_scale": plan.first_scale, "growth_interval": plan.growth_interval}
    scaler = torch.amp.GradScaler(worker.device.type, enabled=scaled, **growth)
    for step in range(plan.steps):
        with precision_context(worker.device, precision):
            loss = model(tokens, targets)
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        zero = _zero_share(model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        skipped = scaled and scaler.get_scale() < scale
        worker.record(entry="scaled step", step=step, loss=loss.item(), scale=scale, skipped=skipped, zero_share=zero)


def _zero_share(model: nn.Module) -> float:
    """Return the share of the matrices' gradients that are exactly 0; the embedding's unused rows are left out."""
    found = [p.grad for name, p in model.named_parameters() if p.dim() > 1 and not name.startswith("embedding")]
    gradients = [gradient for gradient in found if gradient is not None]
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
    for of, found in (("activations", counts), ("weights", weights)):
        for place, number in enumerate(found.tolist()):
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
