"""What all ways to average gradients share: one start, gradients that no rank lacks, buffers that stay alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


class Replicas(nn.Module):
    """A module whose copies, one a rank, take steps with the mean of their gradients.

        loss = wrapped(*batch)
        loss.backward()
        wrapped.finish()  # before optimizer.step()

    The mean is that of the ranks' gradients, each rank counting alike. Where a rank's loss is the mean over its samples
    and ranks have unequally many, scale each loss by its rank's samples × ranks / all samples to have every sample
    count alike. A rank without samples calls only `finish`. The group must reach host tensors, too
    ("cpu:gloo,cuda:nccl").
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__()
        self.module, self.group, self.synced, self.told = module, group, True, None
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]  # a tied one once
        self.ranks = dist.get_world_size(group)
        self.start_alike()

    def start_alike(self) -> None:
        """Give every rank the weights and buffers of rank 0."""
        self.as_on_rank_0([*self.module.parameters(), *self.module.buffers()])

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """Give the module's loss."""
        return self.module(*batch)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add gradients up on each rank; the first backward outside exchanges their sums."""
        self.synced = False
        try:
            yield
        finally:
            self.synced = True

    def finish(self) -> None:
        """Have every gradient be the mean over the ranks, and every buffer that of rank 0."""
        self.settle()
        self.as_on_rank_0(self.module.buffers())

    @torch.no_grad()
    def settle(self) -> None:
        """Average the gradients of all weights that have one on some rank; ranks without one count as zero there.

        A weight without a gradient on any rank is left without one, as in one process: an optimizer leaves it alone.
        """
        used = torch.tensor([weight.grad is not None for weight in self.weights], dtype=torch.uint8)
        lacking = [number for number, weight in enumerate(self.weights) if weight.grad is None]
        self.exchange()
        if self.told:
            self.told.wait()
        self.told = dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group, async_op=True)
        if lacking:  # who lacks none knows that all are used somewhere, and need not wait to hear it
            self.told.wait()
        for number in lacking:
            if not used[number]:
                self.weights[number].grad = None

    def exchange(self) -> None:
        """Average all gradients; each way has its own."""
        raise NotImplementedError

    def gradient(self, weight: nn.Parameter) -> torch.Tensor:
        """Give the weight's gradient; zeros take its place where backward made none."""
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        return weight.grad

    def average(self, tensor: torch.Tensor) -> dist.Work:
        """Start to average a tensor over the ranks, in its place."""
        if tensor.is_cuda:
            return dist.all_reduce(tensor, dist.ReduceOp.AVG, group=self.group, async_op=True)
        tensor.div_(self.ranks)  # gloo only adds up
        return dist.all_reduce(tensor, group=self.group, async_op=True)

    def as_on_rank_0(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite these tensors with rank 0's."""
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.group, group_src=0)

    def close(self) -> None:
        """Take away what hangs on the module, so that it can be wrapped anew."""
