"""A sharded layer that somebody wrote: what its functions send, wait for, keep and give is watched while it trains."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.bert import samples
from labkit.worker.equality import mean_over_ranks, sgd, training_errors
from labkit.worker.trainer import Trainer, batches, time_steps
from lessons.ddp_fsdp.plan import YOURS
from lessons.ddp_fsdp.theory import layer_faults
from lessons.ddp_fsdp.worker.bert import Bert
from lessons.ddp_fsdp.worker.by_hand import ByHand, layer_of
from lessons.ddp_fsdp.worker.sharded_layer import ShardedLayer
from lessons.ddp_fsdp.worker.watched_layer import NoRoom, WatchedLayer, expect_weights, gradient_notes


def try_layers(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> None:
    """Append a row of what was watched while somebody's layers trained, and where nothing is wrong, time their steps.

    The columns of the row are those that `layer_faults` takes. The reference solution and torch's layers are timed
    alone.
    """
    warnings.filterwarnings(
        "ignore", category=FutureWarning
    )  # newer versions of torch have other names for collectives
    if point.variant == YOURS:
        row = watch(worker, point, group)
        worker.record(entry="layers", iteration=0, **row)
        wrong = torch.tensor(float(bool(layer_faults(row | vars(point)))))
        dist.all_reduce(wrong, group=group)  # all ranks time it, or none does
        if wrong or point.ranks < worker.gpus:
            return
    model = Bert(worker.plan, point.seed, worker.device)
    if point.variant == "right":
        trainer = Trainer(model, point.strategy, group, worker.device, sgd)
    else:
        layer = layer_of(point.file) if point.file else ShardedLayer
        trainer = ByHand(model, group, worker.device, sgd, layer)
    own = islice(own_batches(worker, point), 1)
    batch = tuple(next(own)[:-1])
    time_steps(worker, trainer, lambda: [batch], group)


def own_batches(worker: Worker, point: SimpleNamespace, alone: bool = False) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield this rank's share of each global batch, or all of it."""
    tensors = samples(worker.plan, worker.plan.steps * point.batch, point.seed)
    rank, ranks = (0, 1) if alone else (worker.rank, point.ranks)
    return batches(tensors, point.batch, rank, ranks, point.seed)


def watch(worker: Worker, point: SimpleNamespace, group: dist.ProcessGroup | None) -> dict[str, float]:
    """Return what was noted while the layers trained beside one process; `no_room` alone where they could not."""
    notes: dict[str, float] = defaultdict(float)
    layer = type("Watched", (WatchedLayer, layer_of(point.file)), {"notes": notes})
    reference = Trainer(Bert(worker.plan, point.seed, worker.device), "single", None, worker.device, sgd)
    start = [weight.detach().clone() for weight in reference.weights()]
    trainer = ByHand(Bert(worker.plan, point.seed, worker.device), group, worker.device, sgd, layer)
    blocks: list[Any] = [*trainer.model.blocks]
    shares = zip(own_batches(worker, point), own_batches(worker, point, alone=True), strict=False)
    losses = []
    try:
        for number, ((*share, _), (*every, _)) in enumerate(islice(shares, worker.plan.steps)):
            expect_weights(blocks, group)
            loss = trainer.forward(tuple(share))
            for block in blocks:
                block.note_kept("forward")
            trainer.backward(loss)
            for block in blocks:
                block.note_kept("backward")
            right_loss = reference.gradients([tuple(every)])
            if number == 0:
                notes.update(gradient_notes(blocks, [*reference.model.blocks], worker.rank, point.ranks))
            losses.append((mean_over_ranks(loss, group), right_loss.item()))
            trainer.update()
            reference.update()
        expect_weights(blocks, group)
        return {**notes, **training_errors(trainer, reference, start, losses)}
    except NoRoom:
        return {"no_room": 1.0}
