"""Benchmarks of one forward and backward: the right one, and three with a bug; and what each one shows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import nn

from labkit.engine.worker import Worker
from lessons.benchmarking import bugs

_LAYERS, _DROPOUT = 4, 0.1


class Bench:
    """A model, its batches, a device that works while the host goes on, and a clock; it notes what is done with them.

    On a CPU one thread stands in for the GPU's stream: what is launched waits there for its turn.
    """

    def __init__(self, device: torch.device, width: int, rows: int, seed: int):
        self.device, self.rows, self.width = device, rows, width
        torch.manual_seed(seed)
        with device:  # lazy layers make their weights in the first forward, which is slow on any device
            layers = [[nn.LazyLinear(width), nn.GELU(), nn.Dropout(_DROPOUT)] for _ in range(_LAYERS)]
        self.model = nn.Sequential(*(layer for block in layers for layer in block))
        self.stream = None if device.type == "cuda" else ThreadPoolExecutor(1)
        self.pending: list[Future] = []
        self.losses: list[torch.Tensor] = []
        self.running, self.in_flight, self.steps_before = False, 0, 0
        self._steps, self._read = 0, False

    def launch(self, work: Callable[[], object]) -> None:
        """Have the device do `work`, after all that it was told before."""
        if self.stream is None:
            work()
        else:
            self.pending.append(self.stream.submit(work))

    def synchronize(self) -> None:
        """Wait until the device has nothing to do."""
        if self.stream is None:
            torch.cuda.synchronize()
        for future in self.pending:
            future.result()
        self.pending.clear()

    def clock(self) -> float:
        """Return the host's time; every second reading ends what the one before began."""
        if not self._read:
            self.steps_before, self._read = self._steps, True
        if self.running:
            self.in_flight += self._is_busy()
        self.running = not self.running
        return time.perf_counter()

    @contextmanager
    def watch(self, seconds: list[float]) -> Iterator[None]:
        """Time what stands inside until the device has done it, and append its seconds."""
        self.synchronize()
        begun = self.clock()
        yield
        self.synchronize()
        seconds.append(self.clock() - begun)

    def _is_busy(self) -> bool:
        if self.stream is not None:
            return any(not future.done() for future in self.pending)
        event = torch.cuda.Event()
        event.record()
        return not event.query()

    def batch(self) -> torch.Tensor:
        """Make a batch on the host and bring it to the device."""
        return torch.randn(self.rows, self.width).to(self.device)

    def clear(self) -> None:
        """Drop all gradients."""
        self.launch(self.model.zero_grad)

    def step(self, batch: torch.Tensor) -> None:
        """Launch one forward and backward."""
        self._steps += 1

        def work() -> None:
            loss = self.model(batch).square().mean()
            loss.backward()
            self.losses.append(loss.detach())

        self.launch(work)

    def close(self) -> None:
        """End the thread that stands in for a stream."""
        if self.stream is not None:
            self.stream.shutdown()


def right(bench, repeats):
    bench.model.eval()
    batch, seconds = bench.batch(), []
    for _ in range(3):
        bench.step(batch)
    for _ in range(repeats):
        bench.clear()
        with bench.watch(seconds):
            bench.step(batch)
    return seconds


def try_variant(worker: Worker, point: SimpleNamespace) -> None:
    """Append what one benchmark reports, beside the right one of the same model, and what it did.

    `reported_ms` is the mean of what it measured, `true_ms` the median of the right one. `in_flight`: stops of the
    clock at which the device still worked; `steps_before`: steps ahead of the first reading; `loss_apart`: by which
    share losses of the same batch differ.
    """
    plan = worker.plan
    bench = Bench(worker.device, plan.width, plan.rows, point.seed)
    seconds = (right if point.variant == "right" else getattr(bugs, point.variant))(bench, plan.repeats)
    bench.synchronize()
    losses = [loss.item() for loss in bench.losses]
    bench.close()
    judge = Bench(worker.device, plan.width, plan.rows, point.seed)
    true_s = statistics.median(right(judge, plan.repeats))
    judge.close()
    worker.record(
        entry="trial",
        iteration=0,
        reported_ms=1e3 * statistics.mean(seconds),
        true_ms=1e3 * true_s,
        first_times=seconds[0] / statistics.median(seconds),
        in_flight=bench.in_flight,
        steps_before=bench.steps_before,
        loss_apart=max(losses) / min(losses) - 1,
    )
