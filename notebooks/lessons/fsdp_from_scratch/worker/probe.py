"""A small model with awkward cases, and a step of it. Imports nothing of labkit: an answer is graded with it, too."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lessons.fsdp_from_scratch.worker.units import FullySharded

_WIDTH, _INNER, _WORDS, _TOKENS = 6, 13, 11, 4  # units of 187 and 143 elements: none divides among 2, 3 or 4 ranks
MOST = 0.1  # of the length of the gradients: an eighth of it is still clipped
OPTIONS: dict[str, dict[str, Any]] = {
    "kept_whole": {"release": False},
    "far_ahead": {"prefetch": 2},
    "bfloat16": {"precision": torch.bfloat16},
}
Samples = tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """A perceptron beside the residual stream."""

    def __init__(self, frozen: bool):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _INNER), nn.Linear(_INNER, _WIDTH)
        self.up.requires_grad_(not frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Probe(nn.Module):
    """Embedding, three blocks and a head; forward returns the mean loss. Every rank makes it with other weights."""

    def __init__(self, case: str, rank: int, seed: int):
        super().__init__()
        torch.manual_seed(1000 * seed + rank)
        self.case = case
        self.embedding = nn.Embedding(_WORDS, _WIDTH)
        self.blocks = nn.ModuleList([Block(case == "frozen") for _ in range(3)])
        self.last = nn.Tanh() if case == "without_weights" else nn.Identity()
        self.head = nn.Linear(_WIDTH, _WORDS)
        if case == "tied":
            self.head.weight = self.embedding.weight
        if case == "unused":
            self.spare = Block(False)
        self.embedding.requires_grad_(case != "frozen_embedding")

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        order = (0, 1, 1, 2, 0) if self.case == "twice" else (0, 1, 2)
        for block in (self.blocks[number] for number in order):
            checkpointed = self.case == "checkpointed"
            hidden = checkpoint(block, hidden, use_reentrant=False) if checkpointed else block(hidden)
        return functional.cross_entropy(self.head(self.last(hidden)).float(), targets)


def is_unit(module: nn.Module) -> bool:
    """Return whether a module of the probe becomes a unit."""
    return isinstance(module, Block | nn.Tanh)


def sharded_probe(
    case: str,
    rank: int,
    seed: int,
    device: torch.device | str = "cpu",
    *,
    group: dist.ProcessGroup | None = None,
    sharded: type[FullySharded] = FullySharded,
    **options: Any,
) -> FullySharded:
    """Return the probe in units, as the case and the options ask."""
    model = Probe(case, rank, seed).to(device)
    return sharded(model, is_unit, group, **OPTIONS.get(case, {}) | options)


def samples_of(rank: int, seed: int, step: int) -> Samples:
    """Return a rank's tokens of a step and their targets."""
    generator = torch.Generator().manual_seed(1_000_000 * (1 + seed) + 1000 * step + rank)
    tokens, targets = torch.randint(_WORDS, (2, _TOKENS), generator=generator)
    return tokens, targets


def backward_on_rank(sharded: FullySharded, case: str, part: Samples) -> float:
    """Run this rank's part of a step up to its shards' gradients, as the case asks; return its loss."""
    halves = list(zip(*(each.chunk(2) for each in part), strict=True))
    if case in ("accumulation", "no_sync"):
        losses = []
        for number, half in enumerate(halves):
            with sharded.no_sync() if case == "no_sync" and number == 0 else nullcontext():
                losses.append(sharded(*half) / 2)
                losses[-1].backward()
            if case == "accumulation":
                sharded.finish()
    elif case == "two_backwards":
        losses = [sharded(*half) / 2 for half in halves]
        for loss in losses:
            loss.backward()
    else:
        losses = [sharded(*part)]
        losses[0].backward()
    sharded.finish()
    return sum(loss.item() for loss in losses)
