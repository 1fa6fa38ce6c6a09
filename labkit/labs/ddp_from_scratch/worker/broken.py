"""Find the bug: bucketed replicas with one thing wrong each; bugs.SYMPTOMS says in words what."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from labkit.labs.ddp_from_scratch.worker.bucketed import Bucketed


class OneRank(Bucketed):
    """Adds the gradients up on rank 0, and nowhere else."""

    def average(self, tensor: torch.Tensor) -> dist.Work:
        tensor.div_(self.ranks)
        return dist.reduce(tensor, group=self.group, group_dst=0, async_op=True)


class OneBucket(Bucketed):
    """Takes a bucket size and does not use it."""

    def pack(self) -> list[list[nn.Parameter]]:
        return [self.weights[::-1]]


class Undivided(Bucketed):
    """Adds the gradients up and does not divide."""

    def average(self, tensor: torch.Tensor) -> dist.Work:
        return dist.all_reduce(tensor, group=self.group, async_op=True)


class Unwaited(Bucketed):
    """Says that it has finished when everything has been sent."""

    def finish(self) -> None:
        self.send_rest()


class NoFirstBroadcast(Bucketed):
    """Leaves every rank the weights that it was made with."""

    def start_alike(self) -> None:
        pass


VARIANTS = {
    "right": Bucketed,
    "one_rank": OneRank,
    "one_bucket": OneBucket,
    "undivided": Undivided,
    "unwaited": Unwaited,
    "no_first_broadcast": NoFirstBroadcast,
}
