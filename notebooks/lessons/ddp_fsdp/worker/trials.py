"""A strategy beside one process that trains on the same global batches: torch's, by hand, or with a bug in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.worker import Worker
from labkit.plans import ZERO
from labkit.worker.bert import samples
from labkit.worker.equality import gather_numbers, mean_over_ranks, ratio_along, sgd, training_errors, weight_changes
from labkit.worker.trainer import Trainer, batches
from lessons.ddp_fsdp.plan import YOURS
from lessons.ddp_fsdp.worker.bert import Bert
from lessons.ddp_fsdp.worker.by_hand import ByHand, average, layer_of
from lessons.ddp_fsdp.worker.sharded_layer import ShardedLayer

# A variant changes one thing: `share` (whether the sampler knows the ranks), `reshuffle` (whether it knows the epoch),
# `sum` (a communication hook that forgets to divide), `unused` (a layer that no forward calls).
BUGS = {
    "no_sampler": {"share": False},
    "summed": {"sum": True},
    "no_set_epoch": {"reshuffle": False},
    "unused_parameter": {"unused": True},
}


class _Unused(nn.Module):
    """A model with a layer that its forward never calls."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.blocks, self.spare = model, model.blocks, nn.Linear(8, 8)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.model(*batch)


def try_variant(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what two epochs did here and in one process that saw the same global batches.

    `loss_error` and `update_error` are of `training_errors`. `update_ratio`: the first step's change along the right
    one's, 1 unless gradients are scaled. `distinct` is the share of a global batch's samples that differ; `repeated`
    the share of the second epoch's first batch that the first epoch's had at the same places. `raised` is the first
    line of the error that the strategy raised.
    """
    plan, batch, variant = worker.plan, point.batch, BUGS.get(point.variant, {})
    tensors = samples(plan, plan.steps * batch, point.seed)
    reference = Trainer(Bert(plan, point.seed, worker.device), "single", None, worker.device, sgd)
    start = [weight.detach().clone() for weight in reference.weights()]
    model = Bert(plan, point.seed, worker.device)
    if variant.get("unused"):
        model = _Unused(model).to(worker.device)
    if point.variant in ("own_shards", YOURS):
        layer = ShardedLayer if point.variant == "own_shards" else layer_of(plan.yours)
        trainer: Trainer = ByHand(model, group, worker.device, sgd, layer)
    else:
        trainer = make_trainer(model, point, group, worker.device, sgd)
    if hook := {"own_hook": average, "summed": _summed}.get(point.variant):
        trainer.wrapped.register_comm_hook(group, hook)
    choice = {name: variant[name] for name in ("share", "reshuffle") if name in variant}
    mine = batches(tensors, batch, worker.rank, point.ranks, point.seed, **choice)
    reference_batches = batches(tensors, batch, 0, 1, point.seed)
    losses, sample_numbers, row = [], [], {}
    try:
        for *share, numbers in islice(mine, 2 * plan.steps):
            loss, right_loss = trainer.step([tuple(share)]), reference.step([next(reference_batches)[:-1]])
            losses.append((mean_over_ranks(loss, group), right_loss.item()))
            sample_numbers.append(gather_numbers(numbers, point.ranks, group))
            if len(losses) == 1:
                row["update_ratio"] = ratio_along(*weight_changes(trainer, reference, start))
    except RuntimeError as error:
        row["raised"] = str(error).partition("\n")[0].partition(". ")[0]
    if "raised" not in row:
        row |= training_errors(trainer, reference, start, losses)
        row["distinct"] = min(len(set(numbers)) / len(numbers) for numbers in sample_numbers)
        pairs = list(zip(sample_numbers[0], sample_numbers[plan.steps], strict=True))
        row["repeated"] = sum(first == second for first, second in pairs) / len(pairs)
    worker.record(entry="trial", iteration=0, **row)


def _summed(group, bucket):  # torch looks at the annotations, which are strings in this file
    """Add a bucket's gradients over the ranks and forget to divide: a communication hook with a bug."""
    work: Any = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def make_trainer(
    model: nn.Module, point: SimpleNamespace, group: dist.ProcessGroup | None, device: torch.device, optimizer: Callable
) -> Trainer:
    """Return the trainer of the point's strategy; DeepSpeed is imported only for its own strategies."""
    if point.strategy not in ZERO:
        return Trainer(model, point.strategy, group, device, optimizer)
    from lessons.ddp_fsdp.worker.zero import ZeroTrainer

    return ZeroTrainer(model, point.strategy, device, optimizer, point.batch // point.ranks, point.limits)
