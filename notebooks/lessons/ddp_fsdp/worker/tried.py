"""A `sharded_layer` that somebody wrote, tried on some ranks beside one process, where answers are graded."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from lessons.ddp_fsdp.worker.sharded_layer import ShardedLayer
from lessons.ddp_fsdp.worker.watched_layer import NoRoom, WatchedLayer, expect_weights, gradient_notes

_STEPS, _SAMPLES, _LEARNING_RATE = 2, 4, 0.5


def drive(
    functions: dict[str, Callable], world: SimpleNamespace, ranks: int, width: int, layers: int, seed: int
) -> dict[str, Any]:
    """Return what two steps of such layers leave on this rank.

    `notes`: what `layer_faults` takes. `gradients`: of each step, those of this rank's shards; `shards`: at the end.
    """
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer versions of torch have other names
    notes: dict[str, float] = defaultdict(float)
    kind = type("Watched", (WatchedLayer, type("Yours", (ShardedLayer,), functions)), {"notes": notes})
    model: list[Any] = [kind(layer, world.group) for layer in _layers(width, layers, seed)]
    reference = _layers(width, layers, seed)
    samples = torch.randn(_STEPS, ranks * _SAMPLES, width, generator=torch.Generator().manual_seed(seed))
    gradients: list[list[float] | None] = []
    try:
        for step in range(_STEPS):
            expect_weights(model, world.group)
            loss = _loss(model, samples[step][world.rank * _SAMPLES :][:_SAMPLES])
            for layer in model:
                layer.note_kept("forward")
            loss.backward()
            for layer in model:
                layer.note_kept("backward")
            _loss(reference, samples[step]).backward()
            if not step:
                notes.update(gradient_notes(model, [*reference], world.rank, ranks))
            shards = [layer.shard for layer in model]
            gradients += [None if shard.grad is None else shard.grad.tolist() for shard in shards]
            for weight in (*shards, *reference.parameters()):
                if weight.grad is not None:
                    weight.data -= _LEARNING_RATE * weight.grad
                    weight.grad = None
    except NoRoom:
        return {"notes": {"no_room": 1.0}, "gradients": [], "shards": []}
    return {"notes": dict(notes), "gradients": gradients, "shards": [shard.tolist() for shard in shards]}


def _layers(width: int, layers: int, seed: int) -> nn.ModuleList:
    torch.manual_seed(seed)
    return nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)])


def _loss(model: Any, samples: torch.Tensor) -> torch.Tensor:
    for layer in model:
        samples = layer(samples)
    return samples.square().mean()
