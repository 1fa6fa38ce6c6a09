"""Host time and GPU time of a forward, beside the number of its kernels."""

from __future__ import annotations

from labkit.engine.worker import Worker
from labkit.labs.benchmarking.worker.profiles import watched
from labkit.labs.benchmarking.worker.steps import Loop, captured, time_work


def time_launches(worker: Worker, loop: Loop) -> None:
    """Append rows of eager forwards and, on a GPU, of forwards replayed from a CUDA graph; then a row of counts.

    Rows: entry="launch" (mode, ms, enqueue_ms an iteration) and entry="kernels" (kernels, busy_ms a forward).
    """
    time_work(worker, loop.forward, entry="launch", mode="eager")
    seen = watched(worker, loop.forward, steps=1)
    counts = {"kernels": len(seen.events), "busy_ms": seen.busy_us / 1e3}
    worker.record(entry="kernels", iteration=0, warm_up=False, **counts)
    if worker.device.type == "cuda":
        time_work(worker, captured(loop.forward), entry="launch", mode="graph")
