"""Lab 08, what the worker does: runs an attention, times it, weighs it, and sets it beside float64."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

if not torch.cuda.is_available():  # before anything imports Triton: its interpreter then runs the kernels
    os.environ.setdefault("TRITON_INTERPRET", "1")

from labkit.engine.worker import Worker
from labkit.labs.attention.plan import Errors, Memory, Plain, Trial, Tuning
from labkit.labs.attention.worker import tuning
from labkit.labs.attention.worker.checking import errors, kept, peaks, symptoms
from labkit.labs.attention.worker.implementations import implementation
from labkit.labs.attention.worker.tuning import captured, launched, summary, unsynchronised_ms


def prepare(worker: Worker) -> None:
    """Have float32 products keep all their bits: no TF32 unless a kernel says so."""
    torch.backends.cuda.matmul.allow_tf32 = False


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point."""
    if isinstance(worker.plan, Errors):
        worker.record(**errors(point, worker.device))
    elif isinstance(worker.plan, Trial):
        worker.record(**symptoms(point, worker.device))
    else:
        _measure(worker, point)


def _measure(worker: Worker, point: SimpleNamespace) -> None:
    work = Work(worker, point)
    if isinstance(worker.plan, Memory):
        work.weigh()
    elif isinstance(worker.plan, Tuning):
        work.tune()
    elif getattr(point, "clock", "launched") == "captured":
        work.time_captured()
    else:
        if isinstance(worker.plan, Plain):
            work.weigh()
        work.time()


class Work:
    """One attention on one set of tensors: what there is to measure of it."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        plan: Any = worker.plan
        generator = torch.Generator(worker.device).manual_seed(point.seed)
        shape = (1, point.heads, point.sequence, point.head_dim)
        form = {"generator": generator, "dtype": getattr(torch, point.precision), "device": worker.device}
        self.inputs: Any = tuple(torch.randn(shape, **form).requires_grad_() for _ in range(3))
        self.do = torch.randn(shape, **form)
        self.attention = implementation(point.implementation)
        self.worker, self.point, self.repeat_ms = worker, point, plan.repeat_ms

    def forward(self) -> torch.Tensor:
        return self.attention(*self.inputs, self.point.causal)

    def both(self) -> None:
        torch.autograd.grad(self.forward(), self.inputs, self.do)

    def time(self) -> None:
        """Record each phase's time; the phases before one that runs out of memory are kept."""
        self._record("forward", self.forward)
        if isinstance(self.worker.plan, Plain):
            self.worker.record(phase="unsynchronised", ms=unsynchronised_ms(self.worker, self.forward))
        self._record("backward", self._backward())
        self._record("both", self.both)

    def time_captured(self) -> None:
        """Record forward and both as a CUDA graph replays them; tiles are chosen before, outside of it."""
        self.both()
        with torch.no_grad():
            times = captured(self.forward)
        self.worker.record(phase="forward", **summary(times))

        def both() -> None:  # leaves of its own: a graph may not depend on a stream outside
            leaves = tuple(x.detach().requires_grad_() for x in self.inputs)
            torch.autograd.grad(self.attention(*leaves, self.point.causal), leaves, self.do)

        self.worker.record(phase="both", **summary(captured(both)))

    def weigh(self) -> None:
        """Record what is kept for backward, and on a GPU the memory there is at most.

        A compiled graph does not say what it keeps; the memory held after its forward does. Ours runs once before:
        choosing tiles takes memory, too.
        """
        if self.point.implementation == "flash":
            self.both()
        found = {} if self.point.implementation == "compiled" else kept(self.forward)
        if self.worker.device.type == "cuda":
            found |= peaks(self.forward, self.do, self.inputs)
        self.worker.record(phase="memory", **found)

    def tune(self) -> None:
        """Record every candidate's time for each kernel, and which is chosen; a CPU has one, and no time for it."""
        known = set(tuning.measured)
        self.both()
        for problem in [problem for problem in tuning.measured if problem not in known]:
            for tile, ms in tuning.measured[problem].items():
                self.worker.record(
                    kernel=problem[0],
                    tile=str(tile),
                    chosen=tile == tuning.chosen[problem],
                    ms=None if math.isnan(ms) else ms,
                )

    def _backward(self) -> Callable[[], object]:
        o = self.forward()
        return lambda: torch.autograd.grad(o, self.inputs, self.do, retain_graph=True)

    def _record(self, phase: str, work: Callable[[], object]) -> None:
        self.worker.record(phase=phase, **summary(launched(self.worker, work, self.repeat_ms)))
