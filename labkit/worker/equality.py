"""Training under a strategy beside one process that trains on the same global batches."""

from __future__ import annotations

import torch
import torch.distributed as dist

from labkit.worker.trainer import Trainer

LEARNING_RATE = 0.1  # of plain SGD: AdamW would hide a gradient that is N times too large


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LEARNING_RATE)


def weight_changes(
    trainer: Trainer, reference: Trainer, start: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how the weights changed since the start, under the strategy and in one process, as two long vectors."""

    def change(weights) -> torch.Tensor:
        pairs = zip(weights, start, strict=False)  # an unused layer stands last and has no counterpart
        return torch.cat([(weight - before).flatten() for weight, before in pairs])

    return change(trainer.whole()), change(reference.whole())


def training_errors(
    trainer: Trainer, reference: Trainer, start: list[torch.Tensor], losses: list[tuple[float, float]]
) -> dict[str, float]:
    """Return `update_error` and `loss_error`, both relative; `losses` are each step's mean loss and the right one.

    `update_error` is the length of the difference of the weights' changes over that of the right change; `loss_error`
    the largest of the losses.
    """
    change, right_change = weight_changes(trainer, reference, start)
    return {
        "update_error": ((change - right_change).norm() / right_change.norm()).item(),
        "loss_error": max(abs(loss / right - 1) for loss, right in losses),
    }


def ratio_along(change: torch.Tensor, reference: torch.Tensor) -> float:
    """Return how far the change goes along the reference, in lengths of the reference."""
    return (change @ reference / (reference @ reference)).item()


def gather_numbers(numbers: torch.Tensor, ranks: int, group: dist.ProcessGroup | None) -> list[int]:
    """Return the numbers of all ranks' samples, rank after rank."""
    parts = [torch.empty_like(numbers) for _ in range(ranks)]
    dist.all_gather(parts, numbers, group=group)
    return torch.cat(parts).tolist()


def mean_over_ranks(value: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    """Return the mean of a number over the ranks."""
    total = value.detach().double().cpu()
    dist.all_reduce(total, group=group)
    return total.item() / dist.get_world_size(group)
