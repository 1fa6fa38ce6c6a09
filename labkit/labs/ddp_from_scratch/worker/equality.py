"""A small module with everything that replicas find awkward, switched on by the name of the case."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from labkit.engine.worker import Worker
from labkit.labs.ddp_from_scratch.worker.issued import wrap

_WIDTH = 8
Samples = tuple[torch.Tensor, torch.Tensor]


class Probe(nn.Module):
    """A layer, two experts of which a sample takes one, a head; forward gives the mean error over samples.

    Every rank makes it with other weights, and another `centre`: only rank 0's may count.
    """

    centre: torch.Tensor
    experts: Any

    def __init__(self, case: str, rank: int, seed: int):
        super().__init__()
        torch.manual_seed(1000 * seed + rank)
        self.follows = case == "buffers"
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
        if self.follows:
            self.centre.mul_(0.5).add_(0.5 * samples.mean(0))
        positive, mixed = samples[:, :1] > 0, torch.zeros_like(hidden)
        for expert, chosen in zip(self.experts, (positive, ~positive), strict=True):
            if chosen.any():  # an expert that no sample takes has no part in the loss
                made = expert(hidden.to(expert.weight.dtype))
                mixed = torch.where(chosen, made.to(hidden.dtype), mixed)
        return functional.mse_loss(self.last(mixed).float(), targets)


def samples_of(case: str, rank: int, seed: int, step: int) -> Samples:
    """Return a rank's samples of a step and their targets: four, but more on later ranks where they are uneven.

    With "unused_on_some" even ranks' samples all take the first expert, odd ranks' the second.
    """
    count = {"uneven": 2 + 2 * rank, "weighted": 2 + 2 * rank}.get(case, 4)
    numbers = torch.Generator().manual_seed(1_000_000 * (1 + seed) + 1000 * step + rank)
    samples, targets = torch.randn(2, count, _WIDTH, generator=numbers)
    if case == "unused_on_some":
        samples[:, 0] = samples[:, 0].abs() * (-1) ** rank
    return samples, targets


_LEARNING_RATE = 0.5  # of plain SGD: AdamW would hide a gradient that is N times too large


def compare(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row of some steps here and in one process.

    `gradient_error`: the largest length of a step's gradients' difference over that of the right ones; `weight_error`
    the same of the weights at last; `buffer_error` the largest difference of a buffer at last; `apart` the largest
    difference of a weight or buffer from rank 0's; `none_right`: gradients are missing where they are in one process.
    """
    case, last = point.case, worker.gpus - 1
    wrapped = wrap(Probe(case, worker.rank, point.seed).to(worker.device), point.strategy, point.bucket_mb)
    right: Any = Probe(case, 0, point.seed).to(worker.device)
    optimizers = [torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE) for model in (wrapped, right)]
    errors, none_right = [], True
    for step in range(worker.plan.steps):
        parts = [samples_of(case, rank, point.seed, step) for rank in range(worker.gpus)]
        parts = [(samples.to(worker.device), targets.to(worker.device)) for samples, targets in parts]
        if case == "no_samples":
            samples, targets = parts[last]
            parts[last] = samples[:0], targets[:0]
        _own_backward(wrapped, case, parts, worker.rank)
        _right_loss(right, case, parts).backward()
        pairs = list(zip(wrapped.parameters(), right.parameters(), strict=True))
        none_right &= all((a.grad is None) == (b.grad is None) for a, b in pairs)
        errors.append(apart([(a.grad, b.grad) for a, b in pairs if a.grad is not None and b.grad is not None]))
        for optimizer in optimizers:
            optimizer.step()
            if case != "kept_gradients":
                optimizer.zero_grad()
    wrapped.close()
    held, due = ([*model.buffers()] for model in (wrapped, right))
    worker.record(
        entry="equality",
        iteration=0,
        gradient_error=max(errors),
        none_right=none_right,
        weight_error=apart([(a.detach(), b.detach()) for a, b in pairs]),
        buffer_error=max((a - b).abs().max().item() for a, b in zip(held, due, strict=True)),
        apart=from_rank_0([*wrapped.parameters(), *held]),
    )


def _own_backward(wrapped: Any, case: str, parts: list[Samples], rank: int) -> None:
    """Run this rank's part of a step up to its averaged gradients, as the case asks."""
    part, everyone = parts[rank], sum(len(samples) for samples, _ in parts)
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
            (wrapped(*part) * len(part[0]) * len(parts) / everyone).backward()
    else:
        wrapped(*part).backward()
    wrapped.finish()


def _right_loss(model: Probe, case: str, parts: list[Samples]) -> torch.Tensor:
    """Return the loss whose gradients are right: the mean over all samples; over the ranks' means where that is meant.

    A buffer that follows the samples makes ranks differ: each rank begins the step with rank 0's, and rank 0's stays.
    """
    if case not in ("uneven", "buffers"):
        return model(*(torch.cat(each) for each in zip(*parts, strict=True)))
    before, losses = copy.deepcopy(model.centre), []
    for part in reversed(parts):
        model.centre.copy_(before)
        losses.append(model(*part))
    return torch.stack(losses).mean()


def apart(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the length of the pairs' differences over that of the second of each."""
    found, right = (torch.cat([each.flatten().double() for each in side]) for side in zip(*pairs, strict=True))
    return ((found - right).norm() / right.norm()).item()


def from_rank_0(tensors: list[torch.Tensor]) -> float:
    """Return the largest difference of a number from rank 0's."""
    own = torch.cat([tensor.detach().flatten().double().cpu() for tensor in tensors])
    theirs = own.clone()
    dist.broadcast(theirs, 0)
    return (own - theirs).abs().max().item()
