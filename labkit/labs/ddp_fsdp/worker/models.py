"""BERT for classification, whole: lab 03's stage with every layer in it, and a forward that gives the loss."""

from __future__ import annotations

import torch
from torch import nn

from labkit.labs.pipeline.worker.stages import LABELS, Stage, loss_of


class Bert(Stage):
    """BERT with a head; `blocks` are its layers. `precision` "bfloat16" holds the weights in it, too."""

    def __init__(self, plan, seed: int, device: torch.device, precision: str = "float32"):
        autocast = "bfloat16" if precision == "autocast" else "float32"
        super().__init__(plan, range(plan.layers), seed, device, autocast, first=True, last=True)
        if precision == "bfloat16":
            self.to(torch.bfloat16)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.layers

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Give the mean loss of tokens (batch, sequence) and labels (batch)."""
        return loss_of(super().forward(tokens), labels)


def samples(plan, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Give tokens (count, sequence) and labels (count), all random."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, plan.vocabulary, (count, plan.sequence), generator=generator)
    return tokens, torch.randint(0, LABELS, (count,), generator=generator)
