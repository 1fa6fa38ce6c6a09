"""One training step, whatever the strategy: each rank's samples, micro-batches forward and backward, the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from labkit.engine.worker import Worker
from labkit.worker.clocks import clock_mhz, fence
from labkit.worker.strategies import full_tensor, held_bytes, local_tensor, wrap

Batch = tuple[torch.Tensor, ...]
_EPOCH = 8  # global batches before samples come again


class Trainer:
    """A model under a strategy with its optimizer.

    A step takes the mean loss over its micro-batches (each divided by their number). `synced` says whether every
    micro-batch exchanges gradients ("every") or only the last ("last"): between, they are added up where they are.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str,
        group: dist.ProcessGroup | None,
        device: torch.device,
        optimizer: Callable,
        *,
        synced: str = "last",
        divide: bool = True,
    ):
        self.strategy, self.device, self.synced, self.divide = strategy, device, synced, divide
        self.model: Any = model  # modules give their parts by name: Any
        self.wrapped: Any = wrap(model, strategy, group, device)
        self.optimizer = optimizer(self.wrapped.parameters())

    def step(self, micro_batches: list[Batch]) -> torch.Tensor:
        """Run one step and return the mean loss (on this rank's samples)."""
        loss = self.gradients(micro_batches)
        self.update()
        return loss

    def gradients(self, micro_batches: list[Batch]) -> torch.Tensor:
        """Run forward and backward of every micro-batch and return the mean loss."""
        total: Any = 0.0
        for number, batch in enumerate(micro_batches):
            with self.gradient_sync(self.synced == "every" or number == len(micro_batches) - 1):
                loss = self.forward(batch) / (len(micro_batches) if self.divide else 1)
                self.backward(loss)
            total = total + loss.detach()
        return total

    def gradient_sync(self, enabled: bool):
        """Return a context in which backward exchanges gradients, or does not."""
        if self.strategy.startswith("fsdp"):
            self.wrapped.set_requires_gradient_sync(enabled)
            return nullcontext()
        return nullcontext() if enabled or self.strategy == "single" else self.wrapped.no_sync()

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.wrapped(*(tensor.to(self.device, non_blocking=True) for tensor in batch))

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self) -> None:
        """Let go of what would outlive the trainer."""

    def weights(self) -> Iterator[torch.Tensor]:
        """Yield the parameters as they are held here: whole, or sharded."""
        yield from self.model.parameters()

    def whole(self) -> Iterator[torch.Tensor]:
        """Yield the parameters whole, gathered where they are sharded; all ranks must ask."""
        return (full_tensor(weight.detach()) for weight in self.weights())

    def bytes_by_item(self) -> dict[str, int]:
        """Return the bytes of parameters, gradients and optimizer states that this rank holds, as its tensors say."""
        states = [
            value
            for state in self.optimizer.state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.dim()
        ]
        gradients = [weight.grad for weight in self.weights() if weight.grad is not None]
        return {
            "parameters": held_bytes(self.weights()),
            "gradients": held_bytes(gradients),
            "optimizer": held_bytes(states) + held_bytes(getattr(self.optimizer, "masters", [])),
        }


class Steppable(Protocol):
    """Whatever can run a step on micro-batches and give their mean loss."""

    def step(self, micro_batches: list[Batch]) -> torch.Tensor: ...


class MasterAdamW:
    """AdamW over float32 copies of bfloat16 weights: an update too small for bfloat16 is not lost.

    A step reads gradients in bfloat16, updates the copies of what this rank holds, and rounds them back (Micikevicius
    and others, "Mixed precision training", 2018).
    """

    def __init__(self, parameters: Iterator[nn.Parameter], **options):
        self.parameters = list(parameters)
        self.masters = [local_tensor(parameter.detach()).float() for parameter in self.parameters]
        self.inner = torch.optim.AdamW(self.masters, **options)

    @property
    def state(self) -> dict:
        return self.inner.state

    @torch.no_grad()
    def step(self) -> None:
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            gradient: Any = parameter.grad
            master.grad = local_tensor(gradient).float()
            parameter.grad = None  # freed one by one, so that both kinds of gradient are never there together
        self.inner.step()
        self.inner.zero_grad()
        torch._foreach_copy_([local_tensor(parameter.detach()) for parameter in self.parameters], self.masters)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def adamw(learning_rate: float, precision: str, fused: bool) -> Callable:
    """Return what makes the optimizer of parameters: AdamW, fused into one kernel or in torch's usual dozen."""
    kind = MasterAdamW if precision == "bfloat16" else torch.optim.AdamW
    return lambda parameters: kind(parameters, lr=learning_rate, fused=fused or None)


def time_steps(
    worker: Worker, trainer: Steppable, next_batches: Callable[[], list[Batch]], group: dist.ProcessGroup | None
) -> None:
    """Time whole steps, all ranks starting together, and append a row each: time, loss, and the memory so far."""
    for timing in worker.time(lambda: trainer.step(next_batches()), before=lambda: fence(group)):
        worker.record(
            entry="step",
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            step_ms=1e3 * timing.seconds,
            loss=timing.result,
            **clock_mhz(worker.device),
        )


def batches(
    tensors: tuple[torch.Tensor, ...],
    batch: int,
    rank: int,
    ranks: int,
    seed: int,
    *,
    share: bool = True,
    reshuffle: bool = True,
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield this rank's part of one global batch of `batch` samples after another, epoch after epoch, without end.

    The sampler shuffles by seed and epoch alike on all ranks, then takes every `ranks`-th sample: together the ranks
    have the very samples that one process would. Last in each part stand the samples' numbers. `share` and `reshuffle`
    switched off are bugs that a lesson looks for: every rank takes all; the epoch is never set.
    """
    data = TensorDataset(*tensors, torch.arange(len(tensors[0])))
    replicas = {"num_replicas": ranks, "rank": rank} if share else {"num_replicas": 1, "rank": 0}
    sampler = DistributedSampler(data, **replicas, shuffle=True, seed=seed, drop_last=True)
    loader = DataLoader(data, batch_size=batch // ranks, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        if reshuffle:
            sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def batch_source(worker: Worker, point: Any, samples: Callable) -> Callable[[], list[Batch]]:
    """Return a function that returns this rank's micro-batches of the next step.

    `samples(plan, count, seed)` gives tensors of `count` samples each.
    """
    tensors = samples(worker.plan, _EPOCH * point.batch, point.seed)
    data = batches(tensors, point.batch, worker.rank, point.ranks, point.seed)
    return lambda: list(zip(*(part.split(point.micro_batch) for part in next(data)[:-1]), strict=True))
