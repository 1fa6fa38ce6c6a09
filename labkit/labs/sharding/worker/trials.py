"""A strategy that accumulates gradients, beside one process that sees the whole batch at once."""

from __future__ import annotations

import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.counting import Collectives
from labkit.worker.data import batches
from labkit.worker.equality import along, changes, mean, sgd
from labkit.worker.gpt import Gpt, samples
from labkit.worker.trainer import Trainer


def compare(worker: Worker, point, group: dist.ProcessGroup | None) -> None:
    """Append a row of what some steps did here and in one process that saw the same batches.

    `loss_error`, `update_error` and `update_ratio` as in lab 04's trials; `largest_share` is the largest tensor that a
    collective moved, and `exchanges` all gradients that a step reduced, both over the model's parameters.
    """
    plan = worker.plan
    tensors = samples(plan, plan.steps * point.batch, point.seed)
    reference = Trainer(Gpt(plan, point, worker.device), "single", None, worker.device, sgd)
    start = [weight.detach().clone() for weight in reference.weights()]
    trainer = Trainer(
        Gpt(plan, point, worker.device),
        point.strategy,
        group,
        worker.device,
        sgd,
        synced=point.synced,
        divide=point.variant != "undivided",
    )
    mine = batches(tensors, point.batch, worker.rank, point.ranks, point.seed)
    right = batches(tensors, point.batch, 0, 1, point.seed)
    losses, row = [], {}
    for step in range(plan.steps):
        own = zip(*(part.split(point.micro_batch) for part in next(mine)[:-1]), strict=True)
        with Collectives() as sent:
            loss = trainer.step(list(own))
        losses.append((mean(loss, group), reference.step([next(right)[:-1]]).item()))
        if step == 0:
            row["update_ratio"] = along(*changes(trainer, reference, start))
            whole = 4 * plan.model(point.vocabulary).parameters
            row["largest_share"] = sent.largest / whole
            reduced = sent.bytes["all-reduce"] + sent.bytes["reduce-scatter"]
            row["exchanges"] = reduced / whole
    change, right_change = changes(trainer, reference, start)
    row["update_error"] = ((change - right_change).norm() / right_change.norm()).item()
    row["loss_error"] = max(abs(loss / right - 1) for loss, right in losses)
    worker.record(entry="trial", iteration=0, micro_batches=point.micro_batches, **row)
