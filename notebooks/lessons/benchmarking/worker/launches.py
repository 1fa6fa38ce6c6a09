"""Host time and GPU time of a forward, beside the number of its kernels and what a launch costs just then."""

from __future__ import annotations

import time
from types import SimpleNamespace

from labkit.engine.worker import Worker
from lessons.benchmarking.plan import REFERENCE_LAYERS
from lessons.benchmarking.worker.profiles import profile_work
from lessons.benchmarking.worker.steps import TrainingLoop, graph_replay, time_work


class Reference:
    """A forward whose kernels are short, to say what the host takes to launch them just now."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        self.worker = worker
        hidden, inner, _, heads = worker.plan.dimensions("small")
        self.loop = TrainingLoop(worker, point, (hidden, inner, REFERENCE_LAYERS, heads))
        for _ in range(worker.plan.warm_ups):
            self.loop.forward()

    def host_ms(self) -> float:
        """Return the host's time for one forward that starts on an idle device."""
        self.worker.synchronize()
        begun = time.perf_counter()
        self.loop.forward()
        passed = time.perf_counter() - begun
        self.worker.synchronize()
        return 1e3 * passed


def time_launches(worker: Worker, point: SimpleNamespace, loop: TrainingLoop) -> None:
    """Append rows of eager forwards, each after the reference's, and on a GPU of forwards from a CUDA graph.

    Rows: entry="launch" (mode, ms, enqueue_ms and reference_ms an iteration).
    """
    if not isinstance(worker.state, Reference):
        worker.state = Reference(worker, point)
    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for iteration in range(sum(often.values())):
        reference_ms = worker.state.host_ms()
        with worker.clock() as timing:
            begun = time.perf_counter()
            loop.forward()
            enqueued = time.perf_counter() - begun
        times = {"ms": 1e3 * timing.seconds, "enqueue_ms": 1e3 * enqueued, "reference_ms": reference_ms}
        warm_up = iteration < worker.plan.warm_ups
        worker.record(entry="launch", mode="eager", iteration=iteration, warm_up=warm_up, **times)
    if worker.device.type == "cuda":
        time_work(worker, graph_replay(loop.forward), often, entry="launch", mode="graph")


def count_kernels(worker: Worker, loop: TrainingLoop) -> None:
    """Append what one forward launches. Rows: entry="kernels" (kernels, busy_ms)."""
    profiled = profile_work(worker, loop.forward, steps=1)
    worker.record(entry="kernels", kernels=len(profiled.events), busy_ms=profiled.busy_us / 1e3)
