"""A small model with awkward cases, and a step of it. Imports nothing of labkit: an answer is graded with it, too."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_WIDTH = 8
LEARNING_RATE = 0.5  # of plain SGD: AdamW would hide a gradient that is N times too large
Samples = tuple[torch.Tensor, torch.Tensor]


class Probe(nn.Module):
    """A small model whose name of a case switches on what is awkward; forward returns the mean error over samples.

    Each sample goes through one of two experts. Every rank makes the model with other weights and another `centre`.
    """

    centre: torch.Tensor
    experts: Any

    def __init__(self, case: str, rank: int, seed: int):
        super().__init__()
        torch.manual_seed(1000 * seed + rank)
        self.updates_centre = case == "buffers"
        self.first, self.last = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.experts = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH) for _ in range(2)])
        self.register_buffer("centre", torch.full((_WIDTH,), 0.1 * rank))
        if case == "tied":
            self.last.weight = self.first.weight
        if case == "frozen":
            self.first.weight.requires_grad_(False)
            self.experts[1].requires_grad_(False)
        if case == "unused":
            self.spare = nn.Linear(_WIDTH, _WIDTH)
        if case == "bfloat16":
            self.to(torch.bfloat16)
        if case == "mixed":
            self.experts.to(torch.bfloat16)

    def forward(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        samples = samples.to(self.first.weight.dtype)
        hidden = torch.tanh(self.first(samples - self.centre))
        if self.updates_centre:
            self.centre.mul_(0.5).add_(0.5 * samples.mean(0))
        positive, mixed = samples[:, :1] > 0, torch.zeros_like(hidden)
        for expert, chosen in zip(self.experts, (positive, ~positive), strict=True):
            if chosen.any():  # an expert that no sample takes has no part in the loss
                output = expert(hidden.to(expert.weight.dtype))
                mixed = torch.where(chosen, output.to(hidden.dtype), mixed)
        return functional.mse_loss(self.last(mixed).float(), targets)


def samples_of(case: str, rank: int, ranks: int, seed: int, step: int) -> Samples:
    """Return a rank's samples of a step and their targets: four, or more on later ranks if the case is uneven.

    With "no_samples" the last rank has none.
    With "unused_on_some" even ranks' samples all take the first expert, odd ranks' the second.
    """
    count = 2 + 2 * rank if case in ("uneven", "weighted") else 4
    if case == "no_samples" and rank == ranks - 1:
        count = 0
    generator = torch.Generator().manual_seed(1_000_000 * (1 + seed) + 1000 * step + rank)
    samples, targets = torch.randn(2, count, _WIDTH, generator=generator)
    if case == "unused_on_some":
        samples[:, 0] = samples[:, 0].abs() * (-1) ** rank
    return samples, targets


def backward_on_rank(wrapped: Any, case: str, parts: list[Samples], rank: int) -> None:
    """Run this rank's part of a step up to its averaged gradients, as the case asks."""
    part, samples_in_all = parts[rank], sum(len(samples) for samples, _ in parts)
    halves = list(zip(*(each.chunk(2) for each in part), strict=True))
    if case == "accumulation":
        with wrapped.no_sync():
            (wrapped(*halves[0]) / 2).backward()
        (wrapped(*halves[1]) / 2).backward()
    elif case == "two_backwards":
        for loss in [wrapped(*half) / 2 for half in halves]:
            loss.backward()
    elif case in ("weighted", "no_samples"):
        if len(part[0]):
            (wrapped(*part) * len(part[0]) * len(parts) / samples_in_all).backward()
    else:
        wrapped(*part).backward()
    wrapped.finish()
