"""GPT-2, as short as it can be said: embeddings, blocks, and a head that shares the embedding's matrix."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SPREAD = 0.02  # standard deviation of GPT-2's initial weights


class Block(nn.Module):
    """Attention and a perceptron, each after a LayerNorm and beside the residual stream (batch, sequence, hidden)."""

    def __init__(self, hidden: int, heads: int, plain: bool = False):
        super().__init__()
        self.heads, self.plain = heads, plain
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.out(self.attend(self.qkv(self.norm1(hidden))))
        return hidden + self.down(functional.gelu(self.up(self.norm2(hidden)), approximate="tanh"))

    def attend(self, qkv: torch.Tensor) -> torch.Tensor:
        """Return the attention's output (batch, sequence, hidden) of q, k and v (batch, sequence, 3·hidden)."""
        batch, sequence, width = qkv.shape
        q, k, v = qkv.view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.plain:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            later = torch.ones(sequence, sequence, dtype=torch.bool, device=q.device).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, sequence, width // 3)


class Gpt(nn.Module):
    """GPT-2 with a language-model head; forward gives the mean loss of targets (batch, sequence).

    `precision` "autocast" multiplies in bfloat16 with float32 weights; "bfloat16" holds the weights in bfloat16.
    `plan` has layers, hidden, heads, sequence and words.
    """

    def __init__(self, plan: Any, point: SimpleNamespace, device: torch.device):
        super().__init__()
        self.autocast = {"device_type": device.type, "dtype": torch.bfloat16, "enabled": point.precision == "autocast"}
        dtype = torch.bfloat16 if point.precision == "bfloat16" else torch.float32
        with torch.device(device):
            self.embedding = nn.Embedding(point.vocabulary, plan.hidden)
            self.positions = nn.Embedding(plan.sequence, plan.hidden)
            plain = point.attention == "plain"
            self.blocks = nn.ModuleList([Block(plan.hidden, plan.heads, plain) for _ in range(plan.layers)])
            self.norm = nn.LayerNorm(plan.hidden)
        generator = torch.Generator(device).manual_seed(point.seed)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=SPREAD, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        self.to(dtype)
        if point.compiled == "whole":
            self.forward = torch.compile(self.forward, dynamic=False)
        elif point.compiled == "blocks":
            for block in self.blocks:
                block.forward = torch.compile(block.forward, dynamic=False)
            self.tail = torch.compile(self.tail, dynamic=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(**self.autocast):
            hidden = self.embedding(tokens) + self.positions.weight
            for block in self.blocks:
                hidden = block(hidden)
            return self.tail(hidden, targets)

    def tail(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of the targets: the head is the embedding's matrix."""
        logits = functional.linear(self.norm(hidden), self.embedding.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def samples(plan: Any, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random tokens (count, sequence) and, as targets, each one's next."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, plan.words, (count, plan.sequence + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
