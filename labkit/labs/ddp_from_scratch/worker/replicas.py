"""What all ways to average gradients share, and the first two: one gradient after the other, or all in one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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
    ("cpu:gloo,cuda:nccl"). Inputs and outputs may be anything that the module takes and gives: tensors by position or
    by name, a loss, a tuple, a dictionary.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__()
        self.module, self.group, self.synced = module, group, True
        self.flags: Any = None  # the last exchange of who used which weight
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]  # a tied one once
        self.ranks = dist.get_world_size(group)
        self.start_alike()

    def start_alike(self) -> None:
        """Return every rank the weights and buffers of rank 0."""
        self.as_on_rank_0([*self.module.parameters(), *self.module.buffers()])

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Return what the module returns."""
        return self.module(*inputs, **named_inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add gradients up on each rank; the first backward outside exchanges their sums."""
        before, self.synced = self.synced, False
        try:
            yield
        finally:
            self.synced = before

    def finish(self) -> None:
        """Have every gradient be the mean over the ranks, and every buffer that of rank 0."""
        self.settle()
        self.as_on_rank_0(self.module.buffers())

    @torch.no_grad()
    def settle(self) -> None:
        """Average the gradients of all weights that have one on some rank; ranks without one count as zero there.

        A weight without a gradient on any rank is left without one, as in one process: an optimizer leaves it alone.
        The flags that say who has which may still be on their way afterwards: `drain` waits for them.
        """
        if not self.weights:
            return
        used = torch.tensor([weight.grad is not None for weight in self.weights], dtype=torch.uint8)
        lacking = [number for number, weight in enumerate(self.weights) if weight.grad is None]
        self.exchange()
        if self.flags:
            self.flags.wait()
        self.flags = dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group, async_op=True)
        if lacking:  # who lacks none knows that all are used somewhere, and need not wait to hear it
            self.flags.wait()
        for number in lacking:
            if not used[number]:
                self.weights[number].grad = None

    def exchange(self) -> None:
        """Average all gradients; each way has its own."""
        raise NotImplementedError

    def gradient(self, weight: nn.Parameter) -> torch.Tensor:
        """Return the weight's gradient; zeros take its place where backward made none."""
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        return weight.grad

    def average(self, tensor: torch.Tensor) -> Any:
        """Start to average a tensor over the ranks, in its place; return the work to wait for."""
        if tensor.is_cuda:
            return dist.all_reduce(tensor, dist.ReduceOp.AVG, group=self.group, async_op=True)
        tensor.div_(self.ranks)  # gloo only adds up
        return dist.all_reduce(tensor, group=self.group, async_op=True)

    def as_on_rank_0(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite these tensors with rank 0's."""
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.group, group_src=0)

    def drain(self) -> None:
        """Wait for all that this rank has sent.

        Call it before a profile ends: torch's profiler that stops in the middle of a gloo collective frees memory that
        the collective writes to when it ends.
        """
        if self.flags:
            self.flags.wait()

    def close(self) -> None:
        """Remove the hooks from the module, so that it can be wrapped anew, and wait for all that was sent."""
        self.drain()


class Naive(Replicas):
    """One collective a weight, each waited for before the next: nothing is hidden, and every call costs its latency."""

    def exchange(self) -> None:
        for weight in self.weights:
            self.average(self.gradient(weight)).wait()


class Flat(Replicas):
    """One collective a step: its latency is paid once, two copies and as much memory as the gradients take are new."""

    def exchange(self) -> None:
        gradients = [self.gradient(weight) for weight in self.weights]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.average(flat).wait()
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
