"""A lab for the tests of lab 10's replicas: modules that take inputs by name and return more than a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from lessons.ddp_from_scratch.plan import OURS, Replicas
from lessons.ddp_from_scratch.worker.equality import relative_difference
from lessons.ddp_from_scratch.worker.wrapped import wrap

WIDTH = 8


@dataclass(frozen=True, kw_only=True)
class Outputs(Replicas):
    """A point a strategy, an output and a way to call backward."""

    lab: ClassVar[str] = "outputs"
    worker: ClassVar[str] = "outputs_worker"

    outputs: tuple[str, ...] = ("tuple", "dictionary", "object")
    backwards: tuple[str, ...] = ("one", "two", "two forwards")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for strategy in OURS:
            for output in self.outputs:
                for backward in self.backwards:
                    yield self.setting(strategy, 0.0003) | {"output": output, "backward": backward}


@dataclass
class Losses:
    """An output that is no container of torch's or Python's."""

    near: torch.Tensor
    far: torch.Tensor


class Pair(nn.Module):
    """Two losses of which the second uses all of the first one's weights, and more of them."""

    def __init__(self, output: str, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.output = output
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, samples: torch.Tensor, *, scale: float) -> Any:
        hidden = torch.tanh(self.second(torch.tanh(scale * self.first(samples))))
        near, far = hidden.square().mean(), self.third(hidden).square().mean()
        if self.output == "dictionary":
            return {"near": near, "others": [far, "text"]}
        return Losses(near, far) if self.output == "object" else (near, far)


def losses(output: Any) -> list[torch.Tensor]:
    """Give the two losses of any of the outputs."""
    if isinstance(output, dict):
        return [output["near"], output["others"][0]]
    return [output.near, output.far] if isinstance(output, Losses) else list(output)


def backward(module: nn.Module, rank: int, way: str) -> None:
    """Run forward and backward on a rank's samples, as the point asks."""
    samples = torch.randn(2, 4, WIDTH, generator=torch.Generator().manual_seed(rank))
    found = losses(module(samples=samples[0], scale=2.0))
    if way == "two forwards":
        found += losses(module(samples[1], scale=3.0))
    if way == "two":
        found[1].backward(retain_graph=True)
        found[0].backward()
    else:
        sum(found).backward()


def measure(worker, point) -> None:
    """Append how far the gradients are from the mean of all ranks', and how often each was sent."""
    wrapped = wrap(Pair(point.output, worker.rank), point.strategy, point.bucket_mb)
    rights = [Pair(point.output, 0) for _ in range(worker.gpus)]
    average, sent = wrapped.average, []
    wrapped.average = lambda tensor: sent.append(tensor.numel()) or average(tensor)
    backward(wrapped, worker.rank, point.backward)
    wrapped.finish()
    for rank, right in enumerate(rights):
        backward(right, rank, point.backward)
    alike = zip(*(right.parameters() for right in rights), strict=True)
    means = [torch.stack([weight.grad for weight in each]).mean(0) for each in alike]
    weights = list(wrapped.parameters())
    error = relative_difference([(weight.grad, mean) for weight, mean in zip(weights, means, strict=True)])
    worker.record(error=error, times_sent=sum(sent) / sum(weight.numel() for weight in weights))
    wrapped.close()
