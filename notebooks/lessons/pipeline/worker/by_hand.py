"""A pipeline by hand: one rank's list of steps, run one after another. A trial compares it with the whole model."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from labkit.worker.bert import loss_of
from labkit.worker.clocks import Tape
from lessons.pipeline.theory.schedules import Step


class Link:
    """This rank's way to its neighbours: hidden states go to the next rank, their gradients to the one before.

    Each way has a process group of its own, so that no message waits behind one of the other way.
    """

    def __init__(self, rank: int, ranks: int, shape: torch.Size, device: torch.device, groups):
        self.rank, self.shape, self.device = rank, shape, device
        self.states, self.gradients = groups
        self.first, self.last = rank == 0, rank == ranks - 1
        self.sent = []

    def send(self, tensor: torch.Tensor, to: int, group) -> None:
        self.sent.append((dist.isend(tensor, to, group), tensor))  # a tensor lives until it has arrived

    def receive(self, origin: int, group) -> torch.Tensor:
        tensor = torch.empty(self.shape, device=self.device)
        dist.recv(tensor, origin, group)
        return tensor

    def finish(self) -> None:
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()


def run_steps(steps: list[Step], stage: nn.Module, link: Link, tokens, labels, tape: Tape) -> list[torch.Tensor]:
    """Run this rank's steps in their order; return the micro-batches' losses, which the last rank has."""
    kept, losses = {}, []
    for kind, number, i in steps:
        if kind == "F":
            given = tokens[i] if link.first else link.receive(link.rank - 1, link.states).requires_grad_()
            with tape.span(kind, number, i):
                output = stage(given)
                if link.last:
                    output = loss_of(output, labels[i])
                    losses.append(output.detach())
            if not link.last:
                link.send(output.detach(), link.rank + 1, link.states)
            kept[i] = given, output  # until this micro-batch's backward
        else:
            given, output = kept.pop(i)
            if link.last:
                gradient = torch.full_like(output, 1 / len(tokens))  # the loss is a mean over all micro-batches
            else:
                gradient = link.receive(link.rank + 1, link.gradients)
            with tape.span(kind, number, i):
                output.backward(gradient)
            if not link.first:
                link.send(given.grad, link.rank - 1, link.gradients)
    link.finish()
    return losses
