"""AdamW over bfloat16 weights, written out, with a bug or without, beside float32 copies that take its gradients."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from labkit.worker.gpt import Gpt, samples

_RATE, _DECAY, _BETAS, _EPSILON = 3e-4, 0.01, (0.9, 0.999), 1e-8


class Weight:
    """One parameter's numbers in an optimizer: what is kept, in float32 or as it is, and two moments."""

    def __init__(self, weight: torch.Tensor, variant: str):
        self.variant = variant
        self.kept = weight.detach().clone() if variant == "rounded_away" else weight.detach().float()
        self.first, self.second = (torch.zeros_like(weight, dtype=torch.float32) for _ in range(2))

    def step(self, gradient: torch.Tensor, number: int) -> torch.Tensor:
        """Take step `number`, from 1 on, and return what is kept."""
        self.first.lerp_(gradient, 1 - _BETAS[0])
        self.second.lerp_(gradient * gradient, 1 - _BETAS[1])
        number = 1 if self.variant == "first_step_forever" else number
        first, second = self.first / (1 - _BETAS[0] ** number), self.second / (1 - _BETAS[1] ** number)
        self.kept.mul_(1 - (1 if self.variant == "decay_without_rate" else _RATE) * _DECAY)
        return self.kept.sub_(_RATE * first / (second.sqrt() + _EPSILON))


def try_optimizer(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row: how far gains and matrices went, and the first and the last step, over those of float32 copies."""
    plan = worker.plan
    shape = {"precision": "bfloat16", "vocabulary": plan.words, "attention": "plain", "compiled": "no"}
    model = Gpt(plan, SimpleNamespace(seed=point.seed, **shape), worker.device)
    names = [name for name, _ in model.named_parameters()]
    weights = [*model.parameters()]
    tried, right = ([Weight(weight, variant) for weight in weights] for variant in (point.variant, "right"))
    start = [each.kept.clone() for each in right]
    tokens, targets = (part.to(worker.device) for part in samples(plan, plan.batch, point.seed))
    updates = []
    for number in range(1, plan.steps + 1):
        gradients = [each.float() for each in torch.autograd.grad(model(tokens, targets), weights)]
        before = [[each.kept.float().clone() for each in side] for side in (tried, right)]
        for weight, mine, due, gradient in zip(weights, tried, right, gradients, strict=True):
            weight.data.copy_(mine.step(gradient, number))
            due.step(gradient, number)
        updates.append(_length(tried, before[0]) / _length(right, before[1]))
    gains = [place for place, name in enumerate(names) if "norm" in name and name.endswith("weight")]
    matrices = [place for place, weight in enumerate(weights) if weight.dim() > 1]
    moved = {
        f"{kind}_moved": _length(tried, start, places) / _length(right, start, places)
        for kind, places in (("gains", gains), ("matrices", matrices))
    }
    worker.record(entry="trial", iteration=0, first_update=updates[0], last_update=updates[-1], **moved)


def _length(now: list[Weight], before: list[torch.Tensor], places: list[int] | None = None) -> float:
    """Return how far the weights at some places are from where they were."""
    chosen = range(len(now)) if places is None else places
    return torch.cat([(now[place].kept.float() - before[place]).flatten() for place in chosen]).norm().item()
