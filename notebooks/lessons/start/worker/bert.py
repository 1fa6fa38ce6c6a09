"""A small BERT under DDP, a few training steps: what `make bench` starts in three ways."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertModel

from labkit.engine.worker import Worker

# About 4.4 M parameters, most of them the vocabulary: enough to be a model, too little to take time.
_CONFIG: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}


def measure(worker: Worker, point: SimpleNamespace) -> None:
    torch.manual_seed(point.seed)
    with worker.device:
        model = BertModel(BertConfig(**_CONFIG), add_pooling_layer=False)
    replica = DistributedDataParallel(model, device_ids=list(worker.drives) or None)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-4)
    tokens = torch.randint(0, 30_000, (2, 32), device=worker.device)

    def step() -> float:
        optimizer.zero_grad()
        loss = replica(tokens).last_hidden_state.square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for timing in worker.time(step, warm_ups=0, repeats=worker.plan.steps):
        worker.record(iteration=timing.iteration, seconds=timing.seconds, loss=timing.result)
