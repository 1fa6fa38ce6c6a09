"""Host time and GPU time of a forward, beside the number of its kernels and what a launch costs just then."""

from __future__ import annotations

import time
from types import SimpleNamespace

from labkit.engine.worker import Worker
from lessons.benchmarking.worker.profiles import watched
from lessons.benchmarking.worker.steps import TrainingLoop, captured, time_work

_REFERENCE_LAYERS = 3


class Reference:
    """A forward whose kernels are short, to say what the host takes to launch one."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        self.worker = worker
        hidden, inner, _, heads = worker.plan.dimensions("small")
        self.loop = TrainingLoop(worker, point, (hidden, inner, _REFERENCE_LAYERS, heads))
        for _ in range(worker.plan.warm_ups):
            self.loop.forward()
        self.kernels = len(watched(worker, self.loop.forward, steps=1).events)

    def launch_us(self) -> float:
        """Return the host's time for each kernel of one forward that starts on an idle device."""
        self.worker.synchronize()
        begun = time.perf_counter()
        self.loop.forward()
        passed = time.perf_counter() - begun
        self.worker.synchronize()
        return 1e6 * passed / self.kernels


def time_launches(worker: Worker, point: SimpleNamespace, loop: TrainingLoop) -> None:
    """Append rows of eager forwards, each after the reference's; of forwards from a CUDA graph, on a GPU; and counts.

    Rows: entry="launch" (mode, ms, enqueue_ms and launch_us an iteration) and entry="kernels" (kernels, busy_ms a
    forward).
    """
    if not isinstance(worker.state, Reference):
        worker.state = Reference(worker, point)
    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for iteration in range(sum(often.values())):
        launch_us = worker.state.launch_us()
        with worker.clock() as timing:
            begun = time.perf_counter()
            loop.forward()
            enqueued = time.perf_counter() - begun
        times = {"ms": 1e3 * timing.seconds, "enqueue_ms": 1e3 * enqueued, "launch_us": launch_us}
        warm_up = iteration < worker.plan.warm_ups
        worker.record(entry="launch", mode="eager", iteration=iteration, warm_up=warm_up, **times)
    seen = watched(worker, loop.forward, steps=1)
    counts = {"kernels": len(seen.events), "busy_ms": seen.busy_us / 1e3}
    worker.record(entry="kernels", iteration=0, warm_up=False, **counts)
    if worker.device.type == "cuda":
        time_work(worker, captured(loop.forward), often, entry="launch", mode="graph")
