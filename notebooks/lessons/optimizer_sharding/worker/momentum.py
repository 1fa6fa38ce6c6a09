"""SGD with momentum on one tensor, its state shared out. Imports nothing of labkit: answers are graded with it."""

from __future__ import annotations

import torch
import torch.distributed as dist


def momentum_step(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    momentum: torch.Tensor | float,
    group: dist.ProcessGroup | None,
    rate: float,
    beta: float,
) -> torch.Tensor:
    """Update `weight`, flat and equal on all ranks, in place; return the momentum of this rank's part.

    `gradient` is of this rank's samples. `momentum` is what the last step returned, 0.0 before the first. The weight's
    length divides by the ranks.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    own = weight.chunk(ranks)[rank]
    mean = torch.empty_like(own)
    dist.reduce_scatter_tensor(mean, gradient / ranks, group=group)
    momentum = beta * momentum + mean
    own -= rate * momentum
    dist.all_gather_into_tensor(weight, own, group=group)
    return momentum
