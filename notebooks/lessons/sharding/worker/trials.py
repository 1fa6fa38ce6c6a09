"""One collective timed alone, and training beside one process."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.clocks import fence
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.equality import mean_over_ranks, ratio_along, sgd, training_errors, weight_changes
from labkit.worker.gpt import Gpt, samples
from labkit.worker.trainer import Trainer, batches
from lessons.sharding.worker.yours import YourTrainer


def time_collective(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Time one collective whose whole tensor has `kib` KiB, check its result, and append a row a repeat."""
    count = 256 * point.kib // point.ranks * point.ranks
    whole = torch.full((count,), float(worker.rank + 1), device=worker.device)
    part = torch.full((count // point.ranks,), float(worker.rank + 1), device=worker.device)
    total = point.ranks * (point.ranks + 1) / 2

    def work() -> torch.Tensor:
        if point.collective == "all-reduce":
            dist.all_reduce(whole, group=group)
            return whole
        if point.collective == "all-gather":
            dist.all_gather_into_tensor(whole, part, group=group)
            return whole
        dist.reduce_scatter_tensor(part, whole, group=group)
        return part

    def start() -> None:
        whole.fill_(worker.rank + 1)
        part.fill_(worker.rank + 1)
        fence(group)

    for timing in worker.time(work, before=start):
        mean = (point.ranks + 1) / 2 if point.collective == "all-gather" else total
        right = abs(timing.result.mean(dtype=torch.float64).item() / mean - 1) < 1e-6
        worker.record(
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            seconds=timing.seconds,
            whole_bytes=whole.nbytes,
            status="ok" if right else "wrong result",
        )


def try_variant(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what some steps did here and in one process that saw the same batches.

    `loss_error` and `update_error` are of `training_errors`, `update_ratio` is the first step's change along the right
    one. `largest_share` is the largest tensor that a collective moved, and `exchanges` all gradients that a step
    reduced, both over the model's parameters.
    """
    plan = worker.plan
    tensors = samples(plan, plan.steps * point.batch, point.seed)
    reference = Trainer(Gpt(plan, point, worker.device), "single", None, worker.device, sgd)
    start = [weight.detach().clone() for weight in reference.weights()]
    model = Gpt(plan, point, worker.device)
    if point.variant == "yours":
        trainer = YourTrainer(model, plan.yours, group, worker.device, sgd)
    else:
        divide = point.variant != "undivided"
        trainer = Trainer(model, point.strategy, group, worker.device, sgd, synced=point.synced, divide=divide)
    mine = batches(tensors, point.batch, worker.rank, point.ranks, point.seed)
    right = batches(tensors, point.batch, 0, 1, point.seed)
    losses, row = [], {}
    for step in range(plan.steps):
        micro_batches = zip(*(part.split(point.micro_batch) for part in next(mine)[:-1]), strict=True)
        with CollectiveCounter() as sent:
            loss = trainer.step(list(micro_batches))
        losses.append((mean_over_ranks(loss, group), reference.step([next(right)[:-1]]).item()))
        if step == 0:
            row["update_ratio"] = ratio_along(*weight_changes(trainer, reference, start))
            whole = 4 * plan.model(point.vocabulary).parameters
            row["largest_share"] = sent.largest / whole
            reduced = sent.bytes["all-reduce"] + sent.bytes["reduce-scatter"]
            row["exchanges"] = reduced / whole
    row |= training_errors(trainer, reference, start, losses)
    worker.record(entry="trial", iteration=0, micro_batches=point.micro_batches, **row)
