"""Products of square matrices on every GPU simultaneously, each timed until it is done."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from labkit.worker.settings import set_precision
from lessons.benchmarking.worker.steps import clock_mhz


def time_products(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per product: `ms`, and the GPU's clock right after it."""
    set_precision(point.precision)
    torch.manual_seed(point.seed)
    dtype = torch.bfloat16 if point.precision == "bfloat16" else torch.float32
    one, other, product = (torch.randn(point.side, point.side, device=worker.device, dtype=dtype) for _ in range(3))
    worker.barrier()
    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for timing in worker.time(lambda: torch.mm(one, other, out=product), **often):
        clock = clock_mhz(worker.device)
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds, **clock)
    worker.barrier()
