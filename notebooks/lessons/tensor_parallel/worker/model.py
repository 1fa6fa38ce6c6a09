"""The course's transformer made of parallel layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from labkit.worker.transformer import apply_rotary
from lessons.tensor_parallel.worker.layers import (
    ColumnParallel,
    Ranks,
    RowParallel,
    VocabularyParallelEmbedding,
    dropout,
    parallel_loss,
)


class ParallelBlock(nn.Module):
    """A block whose heads and whose perceptron's inner width are split over the ranks."""

    def __init__(self, ranks: Ranks, block: Any, drop: float = 0.0, row: type[RowParallel] = RowParallel):
        super().__init__()
        if block.heads % ranks.count:
            raise ValueError(f"{block.heads} heads do not divide among {ranks.count} ranks")
        self.heads, self.drop, self.ranks = block.heads // ranks.count, drop, ranks
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.qkv = ColumnParallel(ranks, block.query, block.key, block.value)
        self.gate_up = ColumnParallel(ranks, block.gate, block.up)
        self.out, self.down = row(ranks, block.out), row(ranks, block.down)

    def forward(self, hidden: torch.Tensor, turn: Any, generators: Any) -> torch.Tensor:
        hidden = hidden + self.dropped(self.attend(self.norm1(hidden), turn), generators)
        gate, up = self.gate_up(self.norm2(hidden))
        return hidden + self.dropped(self.down(functional.silu(gate) * up), generators)

    def attend(self, x: torch.Tensor, turn: Any) -> torch.Tensor:
        """Return causal attention of this rank's heads, joined with those of the others."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x))
        q, k = (turn(part) for part in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def dropped(self, x: torch.Tensor, generators: Any) -> torch.Tensor:
        """Drop numbers outside the parallel parts: the same on all ranks or, where positions are split, other ones."""
        share = self.drop if self.training else 0.0
        return dropout(x, share, generators["apart" if self.ranks.sequence else "alike"])


class ParallelTransformer(nn.Module):
    """The transformer with every large weight split; forward returns the mean cross-entropy, the same on all ranks.

    `turn` rotates (…, sequence, width) by position. A tied head is the embedding's part. The norms are those of `model`
    itself, which must not be used afterwards.
    """

    def __init__(
        self,
        model: Any,
        ranks: Ranks,
        turn: Any,
        drop: float = 0.0,
        seed: int = 0,
        loss: Callable = parallel_loss,
        **options: Any,
    ):
        super().__init__()
        self.loss, self.to_sum = loss, False  # whether a backward came after the last `finish`
        self.ranks, self.turn, tied = ranks, turn, model.head.weight is model.embedding.weight
        self.embedding = VocabularyParallelEmbedding(ranks, model.embedding)
        self.blocks = nn.ModuleList([ParallelBlock(ranks, block, drop, **options) for block in model.blocks])
        self.norm, self.head = model.norm, ColumnParallel(ranks, model.head)
        if tied:
            self.head.weights[0] = self.embedding.weight
        device, apart = self.embedding.weight.device, seed + 1 + ranks.rank
        self.generators = {
            name: torch.Generator(device).manual_seed(start) for name, start in (("alike", seed), ("apart", apart))
        }

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, self.turn, self.generators)
        (logits,) = self.head(self.norm(hidden))
        loss = self.loss(logits, targets, self.ranks)
        if loss.requires_grad:
            loss.register_hook(lambda _: setattr(self, "to_sum", True))
        return loss

    def finish(self) -> None:
        """Add up the gradients of weights that every rank has whole, where each rank saw its own positions alone.

        Call it once per step, after the last backward; a second call without a backward changes nothing.
        """
        if self.ranks.sequence and self.to_sum:
            norms = [module.weight for module in self.modules() if isinstance(module, nn.RMSNorm)]
            biases = [module.bias for module in self.modules() if isinstance(module, RowParallel)]
            for weight in (*norms, *biases):
                if weight is not None and weight.grad is not None:
                    weight.grad = self.ranks.sum(weight.grad)
        self.to_sum = False


def rotated(turn: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what turns (…, sequence, width) by position; `turn` are the plain transformer's cosines and sines."""
    return lambda x: apply_rotary(x, turn[:, : x.shape[-2]])
