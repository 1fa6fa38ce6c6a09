"""Two functions that shard a model and add up its gradients, tried on some ranks beside one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from labkit.worker.collectives import CollectiveCounter
from labkit.worker.gpt import Gpt, samples
from labkit.worker.strategies import full_tensor

_PLAN = {"hidden": 8, "heads": 2, "sequence": 6, "words": 20}
_POINT = {"precision": "float32", "vocabulary": 20, "attention": "plain", "compiled": "no"}


def drive(
    functions: dict[str, Callable], world: SimpleNamespace, ranks: int, layers: int, micro_batches: int, seed: int
) -> dict[str, Any]:
    """Return the gradients of one step, whole and in the order of the parameters, and what was sent for them.

    `sharded` is the share of the model that is in units; `largest` and `exchanges` are the largest tensor of a
    collective and all reduced gradients, in models; `ratio`, how far the gradients go along those of one process.
    """
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer versions of torch have other names
    plan, point = SimpleNamespace(layers=layers, **_PLAN), SimpleNamespace(seed=seed, **_POINT)
    model, alone = (Gpt(plan, point, torch.device("cpu")) for _ in range(2))
    whole_bytes = sum(weight.nbytes for weight in alone.parameters())
    tokens, targets = samples(plan, 2 * ranks * micro_batches, seed)
    all_ranks: Any = dist.group.WORLD
    functions["shard_units"](model, DeviceMesh.from_group(world.group or all_ranks, "cpu"))
    parts = ranks * micro_batches
    batches = [*zip(tokens.chunk(parts), targets.chunk(parts), strict=True)]
    with CollectiveCounter() as sent:
        functions["add_gradients"](model, batches[world.rank :: ranks])
    alone(tokens, targets).backward()
    wholes = [weight.grad for weight in model.parameters()]
    gradients = torch.cat(
        [
            (torch.zeros_like(right) if whole is None else full_tensor(whole)).flatten()
            for whole, right in zip(wholes, alone.parameters(), strict=True)
        ]
    )
    right = torch.cat([weight.grad.flatten() for weight in alone.parameters() if weight.grad is not None])
    in_units = sum(weight.nbytes for weight in model.parameters() if isinstance(weight, DTensor))
    return {
        "gradients": gradients.tolist(),
        "sharded": in_units / whole_bytes,
        "largest": sent.largest / whole_bytes,
        "exchanges": (sent.bytes["all-reduce"] + sent.bytes["reduce-scatter"]) / whole_bytes,
        "ratio": (gradients @ right / (right @ right)).item(),
    }
