"""DeepSpeed's ZeRO-1, 2 and 3 behind the same step: it owns backward, optimizer and shards, and we ask it for them."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from labkit.worker.trainer import Batch, Trainer

os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")

deepspeed: Any = importlib.import_module("deepspeed")  # by name: it is installed on few machines

_BUCKET = 25_000_000  # elements; DeepSpeed's own 5e8 would keep 2 GB whatever the model


class ZeroTrainer(Trainer):
    """A model under ZeRO: stage 1 shards optimizer states, 2 gradients too, 3 parameters too.

    Stage 3 has DeepSpeed's own limits (`limits` "default"), or "zero": then it keeps no small parameter whole and none
    for reuse, and gathers each again in backward, as "fsdp_full" does with its blocks.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str,
        device: torch.device,
        optimizer: Callable,
        micro_batch: int,
        limits: str = "default",
    ):
        if device.type == "cpu":
            deepspeed.ops.__compatible_ops__ = {}  # it would build a shared-memory operator for a minute
        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
        self.shapes = [weight.shape for weight in model.parameters()]  # stage 3 empties them
        self.model, self.strategy, self.device, self.stage = model, strategy, device, int(strategy[-1])
        self.synced, self.divide = "last", True
        sizes = {"reduce_bucket_size": min(sum(map(torch.Size.numel, self.shapes)), _BUCKET)}
        if self.stage == 3 and limits == "zero":
            sizes |= {
                "stage3_param_persistence_threshold": 0,
                "stage3_max_reuse_distance": 0,
                "stage3_max_live_parameters": 0,
            }
        self.wrapped = deepspeed.initialize(
            model=model,
            optimizer=optimizer(model.parameters()),
            config={
                "train_micro_batch_size_per_gpu": micro_batch,
                "gradient_clipping": 0.0,
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": self.stage, **sizes},
            },
        )[0]
        self.optimizer = self.wrapped.optimizer

    def gradient_sync(self, enabled: bool):
        return nullcontext()

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.wrapped(*(tensor.to(self.device) for tensor in batch))

    def backward(self, loss: torch.Tensor) -> None:
        self.wrapped.backward(loss)

    def update(self) -> None:
        self.wrapped.step()

    def close(self) -> None:
        """Have DeepSpeed drop its hooks and buffers; of stage 3 some stay until the process ends."""
        self.wrapped.destroy()

    def whole(self) -> Iterator[torch.Tensor]:
        for weight, shape in zip(self.model.parameters(), self.shapes, strict=True):
            yield deepspeed.utils.safe_get_full_fp32_param(weight).clone().view(shape)

    def bytes_by_item(self) -> dict[str, int]:
        """Return nothing: DeepSpeed's flat shards cannot be told apart by use. The allocator knows their sum."""
        return {}
