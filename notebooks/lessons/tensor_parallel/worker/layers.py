"""Tensor parallelism: layers of which each rank has a part, and the four communications between them.

Imports nothing of labkit: it also runs where an answer is graded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


class _Copy(torch.autograd.Function):
    """Forward: the input as it is. Backward: the sum of the ranks' gradients, for each of them used the input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.ranks.enter_backward(gradient), None


class _Sum(torch.autograd.Function):
    """Forward: the sum of the ranks' parts. Backward: the gradient as it is, for each part counts once."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        return ranks.sum(part)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


class _Gather(torch.autograd.Function):
    """Forward: all ranks' positions. Backward: this rank's positions of the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        return ranks.gather(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.ranks.scatter_sum(gradient), None


class _ScatterSum(torch.autograd.Function):
    """Forward: this rank's positions of the sum of the ranks' parts. Backward: all ranks' gradients of positions."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        return ranks.scatter_sum(part)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.ranks.gather(gradient), None


class Ranks:
    """The ranks that share each layer. Tensors are (batch, positions, width).

    `enter` begins a part of the model in which each rank has its own columns, and `leave` ends it. Between these parts
    every rank holds the same; with `sequence`, each rank holds its own positions instead. `silent`: nothing is sent, so
    numbers are wrong; for timing what computing alone takes.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, sequence: bool = False, silent: bool = False):
        self.group, self.sequence, self.silent = group, sequence, silent
        self.count, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        return _Gather.apply(x, self) if self.sequence else _Copy.apply(x, self)

    def leave(self, part: torch.Tensor) -> torch.Tensor:
        return _ScatterSum.apply(part, self) if self.sequence else _Sum.apply(part, self)

    def enter_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of what entered, from that of this rank's columns."""
        return self.sum(gradient)

    def sum_over_ranks(self, part: torch.Tensor) -> torch.Tensor:
        """Return the sum of the ranks' parts, with a gradient."""
        return _Sum.apply(part, self)

    def sum(self, part: torch.Tensor) -> torch.Tensor:
        """Return the sum of the ranks' parts, without a gradient."""
        total = part.detach().contiguous().clone()
        if not self.silent:
            dist.all_reduce(total, group=self.group)
        return total

    def max(self, part: torch.Tensor) -> torch.Tensor:
        """Return the largest of the ranks' numbers, place by place, without a gradient."""
        largest = part.detach().contiguous().clone()
        if not self.silent:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        return largest

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """Return all ranks' positions, from those of this one."""
        x = x.transpose(0, 1).contiguous()
        whole = x.new_empty(self.count * x.shape[0], *x.shape[1:])
        if self.silent:
            whole.view(self.count, *x.shape).copy_(x)
        else:
            dist.all_gather_into_tensor(whole, x, group=self.group)
        return whole.transpose(0, 1).contiguous()  # or each matrix would keep a copy

    def scatter_sum(self, part: torch.Tensor) -> torch.Tensor:
        """Return this rank's positions of the sum of the ranks' parts; raises ValueError if they do not divide."""
        if part.shape[1] % self.count:
            raise ValueError(f"{part.shape[1]} positions do not divide among {self.count} ranks")
        part = part.transpose(0, 1).contiguous()
        own = part.new_empty(part.shape[0] // self.count, *part.shape[1:])
        if self.silent:
            own.copy_(part[: own.shape[0]])
        else:
            dist.reduce_scatter_tensor(own, part, group=self.group)
        return own.transpose(0, 1)

    def part(self, tensor: torch.Tensor, dim: int, what: str) -> nn.Parameter:
        """Return this rank's part of a weight along `dim`; raises ValueError where it does not divide."""
        if tensor.shape[dim] % self.count:
            raise ValueError(f"{what} {tensor.shape[dim]} does not divide among {self.count} ranks")
        own = tensor.detach().chunk(self.count, dim)[self.rank].clone()
        return nn.Parameter(own, requires_grad=tensor.requires_grad)


class ColumnParallel(nn.Module):
    """Linear layers with one input; each rank has some of the outputs of each, and their rows of its weight."""

    def __init__(self, ranks: Ranks, *layers: nn.Linear):
        super().__init__()
        self.ranks = ranks
        self.weights = nn.ParameterList([ranks.part(layer.weight, 0, "width") for layer in layers])
        self.biases = nn.ParameterList(
            [ranks.part(layer.bias, 0, "width") for layer in layers if layer.bias is not None]
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.ranks.enter(x)
        biases = [*self.biases] or [None] * len(self.weights)
        return [functional.linear(x, weight, bias) for weight, bias in zip(self.weights, biases, strict=True)]


class RowParallel(nn.Module):
    """A linear layer of which each rank has some of the inputs, and their columns of the weight; the bias is whole."""

    def __init__(self, ranks: Ranks, layer: nn.Linear):
        super().__init__()
        self.ranks = ranks
        self.weight = ranks.part(layer.weight, 1, "width")
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.ranks.leave(functional.linear(x, self.weight))
        return y if self.bias is None else y + self.bias


class VocabularyParallelEmbedding(nn.Module):
    """An embedding of which each rank has the rows of some words; other words give zeros, and the sum is right."""

    def __init__(self, ranks: Ranks, embedding: nn.Embedding):
        super().__init__()
        self.ranks = ranks
        self.weight = ranks.part(embedding.weight, 0, "vocabulary")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        own = tokens - self.ranks.rank * len(self.weight)
        mine = (own >= 0) & (own < len(self.weight))
        rows = functional.embedding(own.where(mine, 0), self.weight)
        return self.ranks.leave(rows * mine.unsqueeze(-1))


def parallel_loss(logits: torch.Tensor, targets: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Return the mean cross-entropy of logits (…, this rank's words) without gathering them.

    log Σ exp(logit) − logit of the target: a maximum, and two sums of one number per token, are sent.
    """
    words = logits.shape[-1]
    logits = logits.float()
    shifted = logits - ranks.max(logits.max(-1, keepdim=True).values)
    total = ranks.sum_over_ranks(shifted.exp().sum(-1))
    own = targets - ranks.rank * words
    mine = (own >= 0) & (own < words)
    picked = shifted.gather(-1, own.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    return (total.log() - ranks.sum_over_ranks(picked)).mean()


def dropout(x: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """Set a share of the numbers to zero and scale the others, by this generator's mask."""
    if not share:
        return x
    kept = torch.rand(x.shape, generator=generator, device=x.device) >= share
    return x * kept / (1 - share)
