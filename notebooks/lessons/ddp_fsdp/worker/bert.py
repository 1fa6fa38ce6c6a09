"""BERT in one piece, with its loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from labkit.worker.bert import Stage, loss_of


class Bert(Stage):
    """BERT with a head; `blocks` are its layers. `precision` "bfloat16" holds the weights in it."""

    def __init__(self, plan: Any, seed: int, device: torch.device, precision: str = "float32", **knobs: Any):
        super().__init__(plan, range(plan.layers), seed, device, precision, first=True, last=True, **knobs)
        if precision == "bfloat16":
            self.to(torch.bfloat16)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.layers

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of tokens (batch, sequence) and labels (batch)."""
        return loss_of(super().forward(tokens), labels)
