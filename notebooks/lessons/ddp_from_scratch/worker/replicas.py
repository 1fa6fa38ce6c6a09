"""DDP in classes: naive, flat and overlapped ways to average the gradients of replicas; bucketed.py has the fourth.

Imports nothing of labkit: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import register_multi_grad_hook


class Replicas(nn.Module):
    """A module with one copy per rank; all copies take the same steps, with the mean of the ranks' gradients.

        loss = wrapped(*batch)
        loss.backward()
        wrapped.finish()  # before optimizer.step()

    Every rank's gradient counts alike. To count samples alike, scale each rank's loss by `samples on the rank × ranks /
    samples on all ranks`; a rank without samples calls only `finish`. The group must also send CPU tensors:
    "cpu:gloo,cuda:nccl" is gloo for these and NCCL for GPU tensors.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__()
        self.module, self.group, self.sync = module, group, True
        self.used_work: Any = None  # the last all-reduce of the flags that say which weights were used
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]  # a tied weight is here once
        self.ranks = dist.get_world_size(group)
        self.copy_from_rank_0([*module.parameters(), *module.buffers()])  # all ranks start alike

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        return self.module(*inputs, **named_inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Send nothing inside: gradients add up on each rank, and the next backward outside sends their sums."""
        before, self.sync = self.sync, False
        try:
            yield
        finally:
            self.sync = before

    def finish(self) -> None:
        """Wait until every gradient is the mean over the ranks, then copy rank 0's buffers to all ranks."""
        self.average_all()
        self.copy_from_rank_0(self.module.buffers())

    @torch.no_grad()
    def average_all(self) -> None:
        """Average the gradients of all weights that have one on some rank; a missing one counts as zero.

        A weight that has a gradient on no rank keeps `grad = None`, as in one process, so an optimizer skips it. The
        ranks learn this from the maximum of one flag per weight. A rank that has all gradients need not wait for it.
        """
        if not self.weights:
            return
        used = torch.tensor([weight.grad is not None for weight in self.weights], dtype=torch.uint8)
        without_gradient = [number for number, weight in enumerate(self.weights) if weight.grad is None]
        self.exchange()
        if self.used_work:
            self.used_work.wait()
        self.used_work = dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group, async_op=True)
        if without_gradient:
            self.used_work.wait()
        for number in without_gradient:
            if not used[number]:
                self.weights[number].grad = None

    def exchange(self) -> None:
        """Average all gradients, each class in its own way."""
        raise NotImplementedError

    def gradient(self, weight: nn.Parameter) -> torch.Tensor:
        """Return the weight's gradient; where backward made none, make it zeros."""
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        return weight.grad

    def average(self, tensor: torch.Tensor) -> Any:
        """Start to average a tensor over the ranks, in place; return the work to wait for."""
        if tensor.is_cuda:
            return dist.all_reduce(tensor, dist.ReduceOp.AVG, group=self.group, async_op=True)
        tensor.div_(self.ranks)  # not every gloo can average
        return dist.all_reduce(tensor, group=self.group, async_op=True)

    def copy_from_rank_0(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite these tensors with rank 0's."""
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.group, group_src=0)

    def drain(self) -> None:
        """Wait for everything that this rank has sent."""
        if self.used_work:
            self.used_work.wait()

    def close(self) -> None:
        """Wait for everything that was sent, and remove the hooks, so that the module can be wrapped again."""
        self.drain()


class Naive(Replicas):
    """One all-reduce per weight after backward, each waited for: nothing is hidden, each call costs its latency."""

    def exchange(self) -> None:
        for weight in self.weights:
            self.average(self.gradient(weight)).wait()


class Flat(Replicas):
    """One all-reduce per step: one latency, but two copies and as much extra memory as the gradients take."""

    def exchange(self) -> None:
        gradients = [self.gradient(weight) for weight in self.weights]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.average(flat).wait()
        for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


class Overlapped(Replicas):
    """Sends gradients while backward still computes, in buckets; here each gradient is a bucket of its own.

    A hook on every weight runs as soon as its gradient is ready. Buckets are sent in the same order on all ranks, even
    if gradients become ready in another order on some rank: a full bucket waits for those before it. The first
    all-reduce of one rank is paired with the first of the others, the second with the second, and so on.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__(module, group)
        self.buckets = self.fill_buckets()
        self.allocate()
        self.bucket_of = {weight: number for number, bucket in enumerate(self.buckets) for weight in bucket}
        self.works: list[dist.Work] = []
        self.unfinished = False
        self.start_over()
        # Hooks are registered last: a wrapper that runs out of memory while it is made leaves none on the module.
        self.hooks = [weight.register_post_accumulate_grad_hook(self.ready) for weight in self.weights]
        # This hook runs once per backward, when the first gradient is computed and not yet added to the weight's.
        self.hooks.append(register_multi_grad_hook(self.weights, self.backward_starts, mode="any"))

    def fill_buckets(self) -> list[list[nn.Parameter]]:
        """Return the weights of each bucket, in the order of sending: the last weight's gradient is ready first."""
        return [[weight] for weight in reversed(self.weights)]

    def allocate(self) -> None:
        """Make the tensors that buckets are sent from; a single gradient is sent from where it is."""

    def start_over(self) -> None:
        """Count every gradient as missing, for the next backward."""
        self.missing = [len(bucket) for bucket in self.buckets]
        self.works.clear()

    def backward_starts(self, _: torch.Tensor) -> None:
        """Wait for what an earlier backward sent, before this backward adds to it."""
        if self.unfinished:
            self.average_all()
        self.unfinished = self.sync

    def ready(self, weight: nn.Parameter) -> None:
        """Count a gradient as ready, and send every full bucket whose turn has come."""
        if self.sync:
            self.copy_into_bucket(weight)
            self.missing[self.bucket_of[weight]] -= 1
            while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
                self.send_next()

    def copy_into_bucket(self, weight: nn.Parameter) -> None:
        """Copy the weight's gradient to where it is sent from; a single gradient is there already."""

    def tensor_of(self, number: int) -> torch.Tensor:
        """Return the tensor that bucket `number` is sent from."""
        return self.gradient(self.buckets[number][0])

    def send_next(self) -> None:
        """Start to average the next bucket."""
        self.works.append(self.average(self.tensor_of(len(self.works))))

    def exchange(self) -> None:
        self.send_rest()
        for work in self.works:
            work.wait()
        self.start_over()
        self.unfinished = False

    def send_rest(self) -> None:
        """Send the buckets that backward did not fill: gradients that it did not make, or made before."""
        for bucket in self.buckets[len(self.works) :]:
            for weight in bucket:
                self.gradient(weight)
                self.copy_into_bucket(weight)
            self.send_next()

    def drain(self) -> None:
        super().drain()
        for work in self.works:
            work.wait()

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
        super().close()
