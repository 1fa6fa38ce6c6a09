"""Replicas compared with one process that sees all samples: ours in awkward cases, and replicas with one bug each."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.worker import Worker
from lessons.ddp_from_scratch.worker.bucketed import Bucketed
from lessons.ddp_from_scratch.worker.issued import IssueOrder
from lessons.ddp_from_scratch.worker.probe import LEARNING_RATE, Probe, Samples, backward_on_rank, samples_of
from lessons.ddp_from_scratch.worker.wrapped import wrap


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
    optimizers = [torch.optim.SGD(model.parameters(), lr=LEARNING_RATE) for model in (wrapped, reference)]
    errors, none_right = [], True
    for step in range(worker.plan.steps):
        parts = [samples_of(case, rank, worker.gpus, point.seed, step) for rank in range(worker.gpus)]
        parts = [(samples.to(worker.device), targets.to(worker.device)) for samples, targets in parts]
        backward_on_rank(wrapped, case, parts, worker.rank)
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
