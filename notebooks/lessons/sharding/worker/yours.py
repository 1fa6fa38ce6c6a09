"""A model that a student's functions shard and give its gradients, trained as any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from labkit.engine.called_function import load_functions
from labkit.worker.gpt import Gpt
from labkit.worker.trainer import Batch, Trainer
from lessons.sharding.worker.sharded import FUNCTIONS


class YourTrainer(Trainer):
    """`shard_units` of the file makes the units, `add_gradients` runs forward and backward of a step."""

    def __init__(
        self, model: Gpt, file: str, group: dist.ProcessGroup | None, device: torch.device, optimizer: Callable
    ):
        functions, all_ranks = load_functions(Path(file), *FUNCTIONS), cast(Any, dist.group.WORLD)
        functions["shard_units"](model, DeviceMesh.from_group(group or all_ranks, device.type))
        super().__init__(model, "single", None, device, optimizer)  # it is wrapped already
        self.strategy, self.add_gradients = "fsdp_full", functions["add_gradients"]
        self.losses: list[torch.Tensor] = []
        model.register_forward_hook(lambda _model, _batch, loss: self.losses.append(loss.detach()))

    def gradients(self, micro_batches: list[Batch]) -> torch.Tensor:
        self.losses.clear()
        moved: Any = [tuple(part.to(self.device, non_blocking=True) for part in batch) for batch in micro_batches]
        self.add_gradients(self.model, moved)
        return torch.stack(self.losses).mean()
