"""Bucketed replicas on trial: one step, the last rank late, beside one process with all ranks' samples."""

from __future__ import annotations

import time

import torch
from torch import nn

from labkit.engine.worker import Worker
from labkit.labs.ddp_from_scratch.worker.broken import VARIANTS
from labkit.labs.ddp_from_scratch.worker.equality import from_rank_0
from labkit.labs.ddp_from_scratch.worker.issued import Issued
from labkit.worker.equality import along


def put_on_trial(worker: Worker, point, models: list[nn.Module]) -> None:
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
    due = gradients(right)
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
        found.append(gradients(model))

    sent = Issued(model).during(late, finish)
    wrapped.drain()
    worker.synchronize()
    found.append(gradients(model))
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


def gradients(model: nn.Module) -> torch.Tensor:
    """Give a copy of all gradients as one vector."""
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])
