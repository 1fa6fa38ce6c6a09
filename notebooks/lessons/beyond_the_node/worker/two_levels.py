"""An all-reduce in two levels. It also runs where an answer is graded, and labkit is out of reach there."""

from __future__ import annotations

import torch
import torch.distributed as dist


def hierarchical_all_reduce(
    tensor: torch.Tensor, inside: dist.ProcessGroup, between: dist.ProcessGroup, per_node: int
) -> None:
    """Sum the tensor (its length divides by per_node) over all ranks, each rank of a node one share between nodes."""
    share = tensor.new_empty(tensor.numel() // per_node)
    dist.reduce_scatter_tensor(share, tensor, group=inside)
    dist.all_reduce(share, group=between)
    dist.all_gather_into_tensor(tensor, share, group=inside)
