"""A small module with everything that replicas find awkward, switched on by the name of the case."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTH = 8
Samples = tuple[torch.Tensor, torch.Tensor]


class Probe(nn.Module):
    """A layer, two experts of which a sample takes one, a head; forward gives the mean error over samples.

    Every rank makes it with other weights, and another `centre`: only rank 0's may count.
    """

    def __init__(self, case: str, rank: int, seed: int):
        super().__init__()
        torch.manual_seed(1000 * seed + rank)
        self.follows = case == "buffers"
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.register_buffer("centre", torch.full((WIDTH,), 0.1 * rank))
        if case == "tied":
            self.last.weight = self.first.weight
        if case == "frozen":
            self.first.weight.requires_grad_(False)
            self.experts[1].requires_grad_(False)
        if case == "unused":
            self.spare = nn.Linear(WIDTH, WIDTH)
        if case == "bfloat16":
            self.to(torch.bfloat16)
        if case == "mixed":
            self.experts.to(torch.bfloat16)

    def forward(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        samples = samples.to(self.first.weight.dtype)
        hidden = torch.tanh(self.first(samples - self.centre))
        if self.follows:
            self.centre.mul_(0.5).add_(0.5 * samples.mean(0))
        positive, mixed = samples[:, :1] > 0, torch.zeros_like(hidden)
        for expert, chosen in zip(self.experts, (positive, ~positive), strict=True):
            if chosen.any():  # an expert that no sample takes has no part in the loss
                made = expert(hidden.to(expert.weight.dtype))
                mixed = torch.where(chosen, made.to(hidden.dtype), mixed)
        return functional.mse_loss(self.last(mixed).float(), targets)


def samples_of(case: str, rank: int, seed: int, step: int) -> Samples:
    """Give a rank's samples of a step and their targets: four, but more on later ranks where they are uneven.

    With "unused_on_some" even ranks' samples all take the first expert, odd ranks' the second.
    """
    count = {"uneven": 2 + 2 * rank, "weighted": 2 + 2 * rank}.get(case, 4)
    numbers = torch.Generator().manual_seed(1_000_000 * (1 + seed) + 1000 * step + rank)
    samples, targets = torch.randn(2, count, WIDTH, generator=numbers)
    if case == "unused_on_some":
        samples[:, 0] = samples[:, 0].abs() * (-1) ** rank
    return samples, targets
