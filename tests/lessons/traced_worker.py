"""What the ranks of the profiled lab do: train three layers, profile a step, remember its memory."""

from __future__ import annotations

import torch
import traced_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from labkit.worker.allocations import record_allocations
from labkit.worker.trace import profile_step

WIDTH = 256


def measure(worker, point) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))).to(worker.device)
    if point.strategy == "ddp":
        model = DistributedDataParallel(model, bucket_cap_mb=0.3)
    elif point.strategy == "fsdp":
        mesh = init_device_mesh(worker.device.type, (worker.gpus,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(point.micro_batch, WIDTH, device=worker.device)
    losses = []

    def forward() -> None:
        losses[:] = [model(batch).square().mean()]

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    phases = [("forward", forward), ("backward", lambda: losses.pop().backward()), ("optimizer", update)]

    def step() -> None:
        for _, work in phases:
            work()

    step()
    profile_step(worker, step)
    record_allocations(worker, phases)
