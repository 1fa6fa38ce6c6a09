"""A pipeline by hand: one rank's list of steps, run one after another. A trial compares it with the whole model."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from labkit.worker.bert import loss_of
from lessons.pipeline.theory.schedules import Step


class Link:
    """This rank's way to its neighbours: hidden states go to the next rank, their gradients to the one before."""

    def __init__(self, rank: int, ranks: int, shape: torch.Size, device: torch.device, group):
        self.rank, self.shape, self.device, self.group = rank, shape, device, group
        self.first, self.last = rank == 0, rank == ranks - 1
        self.sent = []

    def send(self, tensor: torch.Tensor, to: int) -> None:
        self.sent.append((dist.isend(tensor, to, self.group), tensor))  # a tensor lives until it has arrived

    def receive(self, origin: int) -> torch.Tensor:
        tensor = torch.empty(self.shape, device=self.device)
        dist.recv(tensor, origin, self.group)
        return tensor

    def finish(self) -> None:
        for work, _ in self.sent:
            work.wait()


def run_steps(steps: list[Step], stage: nn.Module, link: Link, tokens, labels) -> list[torch.Tensor]:
    """Run this rank's steps in their order; return the micro-batches' losses, which the last rank has."""
    kept, losses = {}, []
    for kind, _, i in steps:
        if kind == "F":
            given = tokens[i] if link.first else link.receive(link.rank - 1).requires_grad_()
            output = stage(given)
            if link.last:
                output = loss_of(output, labels[i])
                losses.append(output.detach())
            else:
                link.send(output.detach(), link.rank + 1)
            kept[i] = given, output  # until this micro-batch's backward
        else:
            given, output = kept.pop(i)
            if link.last:
                (output / len(tokens)).backward()  # the loss is a mean over all micro-batches
            else:
                output.backward(link.receive(link.rank + 1))
            if not link.first:
                link.send(given.grad, link.rank - 1)
    link.finish()
    return losses
