"""The mean over ranks, by the first collective of the course. Imports nothing of labkit: answers are graded with it."""

from __future__ import annotations

import torch.distributed as dist


def mean_over_ranks(tensor):
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()
