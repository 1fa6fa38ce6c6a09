"""Replicas compared with one process that sees all samples: ours in awkward cases, and replicas with one bug each."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from labkit.engine.worker import Worker
from lessons.ddp_from_scratch.worker.issued import IssueOrder, wrap
from lessons.ddp_from_scratch.worker.replicas import Bucketed

_WIDTH, _LEARNING_RATE = 8, 0.5  # the rate is of plain SGD: AdamW would hide a gradient that is N times too large
Samples = tuple[torch.Tensor, torch.Tensor]


class Probe(nn.Module):
    """A small model whose name of a case switches on what is awkward; forward returns the mean error over samples.

    Each sample goes through one of two experts. Every rank makes the model with other weights and another `centre`.
    """

    centre: torch.Tensor
    experts: Any

    def __init__(self, case: str, rank: int, seed: int):
        super().__init__()
        torch.manual_seed(1000 * seed + rank)
        self.updates_centre = case == "buffers"
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
        if self.updates_centre:
            self.centre.mul_(0.5).add_(0.5 * samples.mean(0))
        positive, mixed = samples[:, :1] > 0, torch.zeros_like(hidden)
        for expert, chosen in zip(self.experts, (positive, ~positive), strict=True):
            if chosen.any():  # an expert that no sample takes has no part in the loss
                output = expert(hidden.to(expert.weight.dtype))
                mixed = torch.where(chosen, output.to(hidden.dtype), mixed)
        return functional.mse_loss(self.last(mixed).float(), targets)


def samples_of(case: str, rank: int, seed: int, step: int) -> Samples:
    """Return a rank's samples of a step and their targets: four, or more on later ranks if the case is uneven.

    With "unused_on_some" even ranks' samples all take the first expert, odd ranks' the second.
    """
    count = 2 + 2 * rank if case in ("uneven", "weighted") else 4
    generator = torch.Generator().manual_seed(1_000_000 * (1 + seed) + 1000 * step + rank)
    samples, targets = torch.randn(2, count, _WIDTH, generator=generator)
    if case == "unused_on_some":
        samples[:, 0] = samples[:, 0].abs() * (-1) ** rank
    return samples, targets


def compare(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row that compares steps of replicas with the same steps in one process.

    `gradient_error`: length of the difference of a step's gradients over the length of the right ones, the largest of
    all steps; `weight_error`: the same of the weights after the last step; `buffer_error`: largest difference of a
    buffer; `apart`: largest difference of a weight or buffer from rank 0's; `none_right`: gradients are None exactly
    where they are None in one process.
    """
    case = point.case
    wrapped = wrap(Probe(case, worker.rank, point.seed).to(worker.device), point.strategy, point.bucket_mb)
    reference: Any = Probe(case, 0, point.seed).to(worker.device)
    optimizers = [torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE) for model in (wrapped, reference)]
    errors, none_right = [], True
    for step in range(worker.plan.steps):
        parts = [samples_of(case, rank, point.seed, step) for rank in range(worker.gpus)]
        parts = [(samples.to(worker.device), targets.to(worker.device)) for samples, targets in parts]
        if case == "no_samples":
            samples, targets = parts[-1]
            parts[-1] = samples[:0], targets[:0]
        _backward_on_rank(wrapped, case, parts, worker.rank)
        _right_loss(reference, case, parts).backward()
        pairs = list(zip(wrapped.parameters(), reference.parameters(), strict=True))
        none_right &= all((a.grad is None) == (b.grad is None) for a, b in pairs)
        errors.append(
            relative_difference([(a.grad, b.grad) for a, b in pairs if a.grad is not None and b.grad is not None])
        )
        for optimizer in optimizers:
            optimizer.step()
            if case != "kept_gradients":
                optimizer.zero_grad()
    wrapped.close()
    buffers, right_buffers = ([*model.buffers()] for model in (wrapped, reference))
    worker.record(
        entry="equality",
        iteration=0,
        gradient_error=max(errors),
        none_right=none_right,
        weight_error=relative_difference([(a.detach(), b.detach()) for a, b in pairs]),
        buffer_error=max((a - b).abs().max().item() for a, b in zip(buffers, right_buffers, strict=True)),
        apart=difference_from_rank_0([*wrapped.parameters(), *buffers]),
    )


def _backward_on_rank(wrapped: Any, case: str, parts: list[Samples], rank: int) -> None:
    """Run this rank's part of a step up to its averaged gradients, as the case asks."""
    part, samples_in_all = parts[rank], sum(len(samples) for samples, _ in parts)
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
            (wrapped(*part) * len(part[0]) * len(parts) / samples_in_all).backward()
    else:
        wrapped(*part).backward()
    wrapped.finish()


def _right_loss(model: Probe, case: str, parts: list[Samples]) -> torch.Tensor:
    """Return the loss whose gradients are right: the mean over all samples, or ("uneven") over the ranks' means.

    With "buffers" every rank starts the step with rank 0's centre, and rank 0's new centre stays.
    """
    if case not in ("uneven", "buffers"):
        return model(*(torch.cat(each) for each in zip(*parts, strict=True)))
    before, losses = model.centre.clone(), []
    for part in reversed(parts):
        model.centre.copy_(before)
        losses.append(model(*part))
    return torch.stack(losses).mean()


def relative_difference(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the length of the pairs' differences over the length of the second tensors."""
    measured, right = (torch.cat([each.flatten().double() for each in side]) for side in zip(*pairs, strict=True))
    return ((measured - right).norm() / right.norm()).item()


def difference_from_rank_0(tensors: list[torch.Tensor]) -> float:
    """Return the largest difference of a number from rank 0's."""
    here = torch.cat([tensor.detach().flatten().double().cpu() for tensor in tensors])
    on_rank_0 = here.clone()
    dist.broadcast(on_rank_0, 0)
    return (here - on_rank_0).abs().max().item()


class OneRank(Bucketed):
    """Adds the gradients up on rank 0, and on no other rank."""

    def average(self, tensor: torch.Tensor) -> Any:
        tensor.div_(self.ranks)
        return dist.reduce(tensor, group=self.group, group_dst=0, async_op=True)


class OneBucket(Bucketed):
    """Accepts a bucket size and ignores it."""

    def fill_buckets(self) -> list[list[nn.Parameter]]:
        return [self.weights[::-1]]


class Unwaited(Bucketed):
    """Returns from `finish` as soon as everything has been sent."""

    def finish(self) -> None:
        self.send_rest()


VARIANTS = {
    "right": Bucketed,
    "one_rank": OneRank,
    "one_bucket": OneBucket,
    "unwaited": Unwaited,
}


def try_variant(worker: Worker, point: SimpleNamespace, model: nn.Module, reference: nn.Module) -> None:
    """Append a row of one backward of `model` under a variant; `reference` is the same model with rank 0's weights.

    `error`: length of the gradients' difference over that of the right ones, when `finish` returns; `later_error`: the
    same when everything has arrived; and what `IssueOrder` notes of it.
    """
    generator = torch.Generator().manual_seed(point.seed)
    shape = (worker.gpus, worker.plan.samples, worker.plan.sequence + 1)
    tokens = torch.randint(worker.plan.vocabulary, shape, generator=generator).to(worker.device)
    reference(tokens.flatten(0, 1)[:, :-1], tokens.flatten(0, 1)[:, 1:]).backward()
    right_gradients = _gradients(reference)
    wrapped = VARIANTS[point.variant](model, point.bucket_mb)
    gradients = []

    def forward() -> torch.Tensor:
        loss = wrapped(tokens[worker.rank, :, :-1], tokens[worker.rank, :, 1:])
        worker.barrier()
        time.sleep(worker.plan.late_ms / 1e3 * (worker.rank == worker.gpus - 1))
        return loss

    def finish() -> None:
        wrapped.finish()
        gradients.append(_gradients(model))

    sent = IssueOrder(model).during(forward, finish)
    wrapped.drain()
    worker.synchronize()
    gradients.append(_gradients(model))
    wrapped.close()
    error, later_error = (relative_difference([(gradient, right_gradients)]) for gradient in gradients)
    worker.record(entry="trial", iteration=0, error=error, later_error=later_error, **sent)


def _gradients(model: nn.Module) -> torch.Tensor:
    """Return a copy of all gradients as one vector."""
    gradients: list[Any] = [weight.grad for weight in model.parameters()]
    return torch.cat([gradient.flatten() for gradient in gradients])
