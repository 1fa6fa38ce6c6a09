"""The course's transformer: RMSNorm, rotated positions, causal attention and SwiGLU, without a bias anywhere."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from labkit.plans import TransformerPlan

ROTARY_BASE = 10_000.0  # of the rotations' wavelengths (Su and others, "RoFormer", 2021)


class Block(nn.Module):
    """Attention and a SwiGLU perceptron, each after a norm and beside the residual stream (batch, sequence, hidden)."""

    def __init__(self, hidden: int, inner: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(hidden)
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.norm2 = nn.RMSNorm(hidden)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, hidden: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attend(self.norm1(hidden), turn)
        x = self.norm2(hidden)
        return hidden + self.down(functional.silu(self.gate(x)) * self.up(x))

    def attend(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """Return causal attention's output (batch, sequence, hidden); queries and keys are rotated by position."""
        made = (part(x) for part in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in made)
        mixed = functional.scaled_dot_product_attention(apply_rotary(q, turn), apply_rotary(k, turn), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Transformer(nn.Module):
    """Embedding, blocks and a head; forward returns the mean cross-entropy of targets (batch, sequence)."""

    turn: torch.Tensor

    def __init__(self, vocabulary: int, sequence: int, hidden: int, inner: int, layers: int, heads: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList([Block(hidden, inner, heads) for _ in range(layers)])
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.register_buffer("turn", rotary_angles(sequence, hidden // heads), persistent=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, self.turn[:, : tokens.shape[1]])
        return functional.cross_entropy(self.head(self.norm(hidden)).flatten(0, 1), targets.flatten())


def seeded_transformer(plan: TransformerPlan, seed: int, device: torch.device) -> Transformer:
    """Return the plan's model on the device, with the seed's weights."""
    torch.manual_seed(seed)
    with device:
        return Transformer(plan.vocabulary, plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads)


def rotary_angles(sequence: int, width: int) -> torch.Tensor:
    """Return cosines and sines (2, sequence, width / 2) of each position's angles."""
    slower = ROTARY_BASE ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(sequence)[:, None] * slower
    return torch.stack([angles.cos(), angles.sin()])


def apply_rotary(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn each pair of x (…, sequence, width) by its position's angle."""
    (even, odd), (cos, sin) = (x[..., ::2], x[..., 1::2]), turn
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
