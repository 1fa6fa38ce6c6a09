"""What the parts of a stage take alone: embedding, one layer, head; and one transfer between two neighbours."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.worker.bert import LABELS, Stage
from labkit.worker.clocks import fence

LAYERS_AT_ONCE = 3  # as in a stage: what the host needs to start one hides behind the one before
TRANSFERS = 10
PARTS = {"embedding": {"first": True}, "layer": {}, "head": {"last": True}}


def time_parts(worker: Worker, point) -> None:
    """Append, a part and repeat, its forward_ms and backward_ms on one micro-batch; all ranks work at the same time.

    Then transfer_ms: a hidden state of (batch / micro_batches, sequence, hidden) float32 from an even rank to the
    next, as the rank that receives sees it.
    """
    plan, samples = worker.plan, worker.plan.batch // point.micro_batches
    hidden = torch.randn(samples, plan.sequence, plan.hidden, device=worker.device, requires_grad=True)
    tokens = torch.randint(0, plan.vocabulary, (samples, plan.sequence), device=worker.device)
    for part, ends in PARTS.items():
        count = LAYERS_AT_ONCE if part == "layer" else 1
        stage = Stage(plan, range(count if part == "layer" else 0), point.seed, worker.device, point.precision, **ends)
        given = tokens if part == "embedding" else hidden
        shape = (samples, LABELS) if part == "head" else hidden.shape
        gradient = torch.randn(shape, device=worker.device)
        outputs = {}

        def forward(stage=stage, given=given, outputs=outputs):
            outputs["hidden"] = stage(given)

        def backward(outputs=outputs, gradient=gradient):
            outputs["hidden"].backward(gradient)

        for iteration in range(plan.warm_ups + plan.repeats):
            fence(None)
            with worker.clock() as there:
                forward()
            with worker.clock() as back:
                backward()
            row = {"forward_ms": 1e3 * there.seconds / count, "backward_ms": 1e3 * back.seconds / count}
            worker.record(part=part, iteration=iteration, warm_up=iteration < plan.warm_ups, **row)
    time_transfer(worker, hidden.detach())


def time_transfer(worker: Worker, hidden: torch.Tensor) -> None:
    """Send a hidden state from every even rank to the next one, and time it where it is received."""
    if worker.gpus < 2:
        return
    dist.all_reduce(torch.zeros(1, device=worker.device))  # connects all ranks: some have no neighbour below
    sends, peer = worker.rank % 2 == 0, worker.rank + 1 - 2 * (worker.rank % 2)
    for iteration in range(worker.plan.warm_ups + worker.plan.repeats):
        fence(None)
        worker.synchronize()
        start = time.perf_counter()
        for _ in range(TRANSFERS if peer < worker.gpus else 0):
            operation = dist.P2POp(dist.isend if sends else dist.irecv, hidden, peer)
            for work in dist.batch_isend_irecv([operation]):
                work.wait()
        worker.synchronize()
        if not sends:
            row = {"transfer_ms": 1e3 * (time.perf_counter() - start) / TRANSFERS, "mib": hidden.nbytes / 2**20}
            worker.record(part="transfer", iteration=iteration, warm_up=iteration < worker.plan.warm_ups, **row)
