"""One replica and its optimizer: forward, backward, average, update."""

from __future__ import annotations

import torch
import torch.distributed as dist

from labkit.labs.optimizer_sharding.worker.ways import average, made
from labkit.worker.transformer import Transformer


class Replica:
    """The course's transformer on one rank, equal on all, with the point's optimizer, and a batch of its own."""

    def __init__(self, plan, point, rank: int, device: torch.device, group: dist.ProcessGroup | None = None):
        self.model = transformer(plan, point.seed, device)
        self.optimizer = made(self.model.parameters(), point, group)
        self.batch, self.group = batch(plan, point.seed, rank, device), group

    def forward(self) -> torch.Tensor:
        return self.model(*self.batch)

    def gradients(self) -> torch.Tensor:
        """Run forward and backward, average the gradients over the ranks, and give this rank's loss."""
        loss = self.forward()
        loss.backward()
        average(self.model.parameters(), self.group)
        return loss.detach()

    def step(self) -> torch.Tensor:
        """Run one whole step and give this rank's loss."""
        loss = self.gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def transformer(plan, seed: int, device: torch.device) -> Transformer:
    """Give the plan's model with the seed's weights."""
    torch.manual_seed(seed)
    with device:
        return Transformer(plan.vocabulary, plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads)


def batch(plan, seed: int, rank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a rank's random tokens and targets (samples, sequence)."""
    generator = torch.Generator(device).manual_seed(1000 * seed + rank)
    shape = (2, plan.samples, plan.sequence)
    tokens, targets = torch.randint(plan.vocabulary, shape, generator=generator, device=device)
    return tokens, targets
