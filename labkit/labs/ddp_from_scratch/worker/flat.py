"""The second idea: copy all gradients into one long tensor, and average that."""

from __future__ import annotations

import torch

from labkit.labs.ddp_from_scratch.worker.replicas import Replicas


class Flat(Replicas):
    """One collective a step: its latency is paid once, two copies and as much memory as the gradients take are new."""

    def exchange(self) -> None:
        gradients = [self.gradient(weight) for weight in self.weights]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.average(flat).wait()
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
