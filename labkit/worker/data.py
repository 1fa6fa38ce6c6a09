"""Each rank's own part of every global batch, by a DistributedSampler."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def batches(
    tensors: tuple[torch.Tensor, ...],
    batch: int,
    rank: int,
    ranks: int,
    seed: int,
    *,
    share: bool = True,
    reshuffle: bool = True,
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield this rank's part of one global batch of `batch` samples after another, epoch after epoch, without end.

    The sampler shuffles by seed and epoch alike on all ranks, then takes every `ranks`-th sample: together the ranks
    have the very samples that one process would. Last in each part stand the samples' numbers. `share` and `reshuffle`
    switched off are two of the lab's bugs: every rank takes all; the epoch is never set.
    """
    data = TensorDataset(*tensors, torch.arange(len(tensors[0])))
    replicas = {"num_replicas": ranks, "rank": rank} if share else {"num_replicas": 1, "rank": 0}
    sampler = DistributedSampler(data, **replicas, shuffle=True, seed=seed, drop_last=True)
    loader = DataLoader(data, batch_size=batch // ranks, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        if reshuffle:
            sampler.set_epoch(epoch)
        yield from loader
        epoch += 1
