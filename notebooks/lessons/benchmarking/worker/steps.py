"""One model, its optimizer and a batch; its forward, forward + backward, and AdamW step timed; products of matrices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.worker.clocks import clock_mhz
from labkit.worker.settings import set_precision
from labkit.worker.transformer import Transformer
from lessons.benchmarking.plan import PHASES

_LEARNING_RATE = 1e-4
_REHEARSALS = 3  # before a capture: what a first call sets up must not be part of the graph


class TrainingLoop:
    """The course's transformer under one precision and mode; `works` has a function for each phase.

    Forward keeps what a backward needs, as in training, and drops it at once.
    """

    def __init__(self, worker: Worker, point: SimpleNamespace, shape: tuple[int, int, int, int], mode: str = "eager"):
        plan, self.device, self.mode = worker.plan, worker.device, mode
        hidden, inner, layers, heads = shape
        torch.manual_seed(point.seed)
        with self.device:
            self.model = Transformer(plan.vocabulary, plan.sequence, hidden, inner, layers, heads)
        if mode == "compiled":
            torch.compiler.reset()  # the kernels of another size; those of this one also serve "compiled_graph"
        if mode.startswith("compiled"):
            for block in self.model.blocks:  # equal blocks are compiled once
                block.compile(dynamic=False)
        on_gpu = self.device.type == "cuda"
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=_LEARNING_RATE, fused=True, capturable=on_gpu)
        # Every weight is cast once a forward: a cache of the casts would save nothing, and a capture must not meet it.
        mixed = {"enabled": point.precision == "autocast", "cache_enabled": False}
        self.autocast = lambda: torch.autocast(self.device.type, torch.bfloat16, **mixed)
        tokens = torch.randint(plan.vocabulary, (plan.samples, plan.sequence + 1), device=self.device)
        self.batch = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        self.works = dict(zip(PHASES, (self.forward, self.both, self.step), strict=True))

    def loss(self) -> torch.Tensor:
        with self.autocast():
            return self.model(*self.batch)

    def forward(self) -> None:
        self.loss()

    def both(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()

    def step(self) -> None:
        self.both()
        self.optimizer.step()


def compare_clocks(worker: Worker, loop: TrainingLoop) -> None:
    """Append a forward's ms by three clocks: the student's `timed`, `worker.time`, and one that waits for nobody."""
    timed = load_function(Path(worker.plan.yours), "timed")
    yours_s, _, count = timed(loop.forward, worker.synchronize, time.perf_counter)
    seconds = [timing.seconds for timing in worker.time(loop.forward) if not timing.warm_up]
    start = time.perf_counter()
    loop.forward()
    launched_s = time.perf_counter() - start
    worker.synchronize()
    clocks = {"yours": yours_s, "worker": statistics.median(seconds), "launched": launched_s}
    worker.record(iteration=0, count=count, **{f"{name}_ms": 1e3 * took for name, took in clocks.items()})


def graph_replay(work: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that replays `work` from a CUDA graph: one launch for all of its kernels.

    It is rehearsed on another stream first (torch.cuda.graphs, "Whole-network capture").
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_REHEARSALS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def time_phases(worker: Worker, loop: TrainingLoop) -> None:
    """Time each phase on its own, and append a row per iteration."""
    often = worker.plan.often(worker.point.precision)
    for phase in PHASES if loop.mode == "eager" else (PHASES[0], PHASES[-1]):
        work = graph_replay(loop.works[phase]) if loop.mode.endswith("graph") else loop.works[phase]
        time_work(worker, work, often, entry="phase", phase=phase)
        del work
        loop.optimizer.zero_grad()
        if loop.mode.endswith("graph"):
            torch.cuda.empty_cache()  # the graph's own pool of memory


def time_work(worker: Worker, work: Callable[[], Any], often: dict[str, Any], **labels: Any) -> None:
    """Append a row per iteration of `work`: `ms` until it is done, `enqueue_ms` until the host has launched it all.

    On a GPU also `sm_mhz`, its clock right after the iteration, where its driver says it.
    """

    def noted() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    for timing in worker.time(noted, **often):
        times = {"ms": 1e3 * timing.seconds, "enqueue_ms": 1e3 * timing.result}
        clock = clock_mhz(worker.device)
        worker.record(**labels, iteration=timing.iteration, warm_up=timing.warm_up, **times, **clock)


def time_products(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per product: `ms`, and the GPU's clock right after it."""
    set_precision(point.precision)
    torch.manual_seed(point.seed)
    dtype = torch.bfloat16 if point.precision == "bfloat16" else torch.float32
    factor, other, product = (torch.randn(point.side, point.side, device=worker.device, dtype=dtype) for _ in range(3))
    worker.barrier()
    for timing in worker.time(lambda: torch.mm(factor, other, out=product)):
        clock = clock_mhz(worker.device)
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds, **clock)
    worker.barrier()
