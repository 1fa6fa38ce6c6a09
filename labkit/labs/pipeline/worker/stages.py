"""BERT cut into stages: the embedding goes with the first stage, pooler, head and loss with the last."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch

from labkit.worker.bert import LABELS


def cut(sizes: list[int]) -> list[range]:
    """Give the layers of each stage: [6, 2, 2, 2] gives layers 0 to 5, 6 and 7, 8 and 9, 10 and 11."""
    return [range(first, end) for first, end in pairwise([0, *accumulate(sizes)])]


def data(plan, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a global batch: tokens (batch, sequence) and labels (batch), both random, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, plan.vocabulary, (plan.batch, plan.sequence), generator=generator)
    labels = torch.randint(0, LABELS, (plan.batch,), generator=generator)
    return tokens.to(device), labels.to(device)
