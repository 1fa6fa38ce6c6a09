"""Find the bug: bucketed replicas with one thing wrong each; bugs.SYMPTOMS says in words what."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.worker import Worker
from labkit.labs.ddp_from_scratch.worker.equality import from_rank_0
from labkit.labs.ddp_from_scratch.worker.issued import Issued
from labkit.labs.ddp_from_scratch.worker.overlapped import Bucketed
from labkit.worker.equality import along


class OneRank(Bucketed):
    """Adds the gradients up on rank 0, and nowhere else."""

    def average(self, tensor: torch.Tensor) -> Any:
        tensor.div_(self.ranks)
        return dist.reduce(tensor, group=self.group, group_dst=0, async_op=True)


class OneBucket(Bucketed):
    """Takes a bucket size and does not use it."""

    def pack(self) -> list[list[nn.Parameter]]:
        return [self.weights[::-1]]


class Undivided(Bucketed):
    """Adds the gradients up and does not divide."""

    def average(self, tensor: torch.Tensor) -> Any:
        return dist.all_reduce(tensor, group=self.group, async_op=True)


class Unwaited(Bucketed):
    """Says that it has finished when everything has been sent."""

    def finish(self) -> None:
        self.send_rest()


class NoFirstBroadcast(Bucketed):
    """Leaves every rank the weights that it was made with."""

    def start_alike(self) -> None:
        pass


VARIANTS = {
    "right": Bucketed,
    "one_rank": OneRank,
    "one_bucket": OneBucket,
    "undivided": Undivided,
    "unwaited": Unwaited,
    "no_first_broadcast": NoFirstBroadcast,
}


def put_on_trial(worker: Worker, point: SimpleNamespace, models: list[nn.Module]) -> None:
    """Append a row of one backward of the first model, which each rank made otherwise; the second is as rank 0 made it.

    `error`: the length of the gradients' difference over that of the right ones, when `finish` is over; `later_error`
    the same when all sending surely is; `ratio`: the gradients along the right ones, 1 unless they are scaled;
    `start_apart`: the largest difference of a weight from rank 0's before; and what `Issued` notes of the step.
    """
    model, right = models
    numbers = torch.Generator().manual_seed(point.seed)
    shape = (worker.gpus, worker.plan.samples, worker.plan.sequence + 1)
    tokens = torch.randint(worker.plan.vocabulary, shape, generator=numbers).to(worker.device)
    right(tokens.flatten(0, 1)[:, :-1], tokens.flatten(0, 1)[:, 1:]).backward()
    due = _gradients(right)
    wrapped = VARIANTS[point.variant](model, point.bucket_mb)
    start_apart = from_rank_0(list(model.parameters()))
    found = []

    def late() -> torch.Tensor:
        loss = wrapped(tokens[worker.rank, :, :-1], tokens[worker.rank, :, 1:])
        worker.barrier()
        time.sleep(worker.plan.late_ms / 1e3 * (worker.rank == worker.gpus - 1))
        return loss

    def finish() -> None:
        wrapped.finish()
        found.append(_gradients(model))

    sent = Issued(model).during(late, finish)
    wrapped.drain()
    worker.synchronize()
    found.append(_gradients(model))
    wrapped.close()
    errors = [((each - due).norm() / due.norm()).item() for each in found]
    worker.record(
        entry="trial",
        iteration=0,
        error=errors[0],
        later_error=errors[1],
        ratio=along(found[0], due),
        start_apart=start_apart,
        **sent,
    )


def _gradients(model: nn.Module) -> torch.Tensor:
    """Return a copy of all gradients as one vector."""
    own: list[Any] = [weight.grad for weight in model.parameters()]
    return torch.cat([gradient.flatten() for gradient in own])
