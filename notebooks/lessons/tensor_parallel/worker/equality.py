"""Split training compared with one process that has whole layers: in awkward cases, and with one bug each."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from labkit.engine.called_function import load_functions
from labkit.engine.worker import Worker
from labkit.worker.equality import LEARNING_RATE
from labkit.worker.transformer import Transformer, seeded_transformer
from lessons.tensor_parallel.worker.layers import Ranks, RowParallel
from lessons.tensor_parallel.worker.model import ParallelTransformer, rotated

_DROP = 0.25


def compare(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row that compares steps of a split model with the same steps in one process.

    `loss_error` (the largest), `first_error` (of the first loss) and `weight_error` (after the last step) are relative,
    NaN where numbers are dropped. `apart`: the largest difference between a rank's loss and rank 0's. `same_mask`: the
    share of a mask's places that are as on the next rank.
    """
    plan, kind = worker.plan, VARIANTS[getattr(point, "variant", "right")]
    whole = model_of(point.case, plan, worker.device)
    reference = copy.deepcopy(whole)
    ranks = kind.get("ranks", Ranks)(None, "sequence" in point.case)
    options = {"row": kind.get("row", RowParallel)}
    if plan.loss:
        options["loss"] = load_functions(Path(plan.loss), "parallel_loss")["parallel_loss"]
    drop = _DROP if "dropout" in point.case else 0.0
    model = ParallelTransformer(whole, ranks, rotated(reference.turn), drop, point.seed, **options)
    if kind.get("same_mask"):
        model.generators["apart"] = model.generators["alike"]
    optimizers = [torch.optim.SGD(each.parameters(), lr=LEARNING_RATE) for each in (model, reference)]
    errors, apart = [], 0.0
    for step in range(plan.steps):
        tokens = torch.randint(plan.vocabulary, (2, plan.sequence + 1), generator=torch.Generator().manual_seed(step))
        batch = [part.to(worker.device) for part in (tokens[:, :-1], tokens[:, 1:])]
        losses = [each(*batch) for each in (model, reference)]
        for optimizer, loss in zip(optimizers, losses, strict=True):
            loss.backward()
            if loss is losses[0]:
                model.finish()
            optimizer.step()
            optimizer.zero_grad()
        errors.append(abs(losses[0].item() / losses[1].item() - 1))
        first = losses[0].detach().clone()
        dist.broadcast(first, 0)
        apart = max(apart, abs(losses[0].item() - first.item()))
    own = ParallelTransformer(reference, Ranks(None, ranks.sequence), model.turn)  # this rank's parts of whole layers
    mine, due = (torch.cat([weight.detach().flatten() for weight in each.parameters()]) for each in (model, own))
    error = ((mine - due).norm() / due.norm()).item()
    row = {"first_error": errors[0], "loss_error": max(errors), "weight_error": error}
    if drop:
        row = dict.fromkeys(row, float("nan"))
    worker.record(entry="equality", iteration=0, **row, apart=apart, same_mask=same_mask(model, worker))


def model_of(case: str, plan: Any, device: torch.device) -> Transformer:
    """Return the small transformer, the same on all ranks, as the case asks."""
    model = seeded_transformer(plan, 0, device)
    if "tied" in case:
        model.head.weight = model.embedding.weight
    if "biased" in case:
        blocks: Any = model.blocks
        for block in blocks:
            for name, layer in [*block.named_children()]:
                if isinstance(layer, nn.Linear):
                    biased = nn.Linear(layer.in_features, layer.out_features, device=device)
                    setattr(block, name, biased)
    return model


def same_mask(model: ParallelTransformer, worker: Worker) -> float:
    """Return the share of the places of a mask that are the same on the next rank."""
    generator = model.generators["apart" if model.ranks.sequence else "alike"]
    mask = (torch.rand(1024, generator=generator, device=worker.device) >= _DROP).float()
    masks = [torch.empty_like(mask) for _ in range(worker.gpus)]
    dist.all_gather(masks, mask)
    return (mask == masks[(worker.rank + 1) % worker.gpus]).float().mean().item()


class BiasEverywhere(RowParallel):
    """Adds the bias on every rank, before the sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ranks.leave(functional.linear(x, self.weight, self.bias))


class NotSummed(Ranks):
    """Does not add up the gradients of what entered."""

    def enter_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


VARIANTS: dict[str, dict[str, Any]] = {
    "right": {},
    "bias_everywhere": {"row": BiasEverywhere},
    "not_summed": {"ranks": NotSummed},
    "same_mask": {"same_mask": True},
}
