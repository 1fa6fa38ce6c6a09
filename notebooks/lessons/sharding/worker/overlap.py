"""How much communication hides behind computing, three ways: the profiler's, two step times, hooks on the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from labkit.engine.worker import Worker
from labkit.worker.clocks import Clock, Tape, fence
from labkit.worker.strategies import after_gradient
from labkit.worker.trace import profile_step
from labkit.worker.trainer import Batch, Trainer, time_steps


def profile(
    worker: Worker, trainer: Trainer, next_batches: Callable[[], list[Batch]], group: dist.ProcessGroup | None
) -> None:
    """Time the step with its communication and without, note the stream's waits, then trace a step."""

    def time_gradients(entry: str) -> None:
        for timing in worker.time(
            lambda: trainer.gradients(next_batches()),
            warm_ups=1,
            repeats=worker.plan.repeats,
            before=lambda: drop_gradients_and_wait(trainer, group),
        ):
            timed = {"iteration": timing.iteration, "warm_up": timing.warm_up, f"{entry}_ms": 1e3 * timing.seconds}
            worker.record(entry=entry, **timed)

    time_steps(worker, trainer, next_batches, group)
    with without_communication(trainer):
        time_gradients("muted")
    time_gradients("gradients")
    waits = _Waits(worker, trainer)
    for iteration in range(1 + worker.plan.repeats):
        drop_gradients_and_wait(trainer, group)
        waited = waits.waited_s(lambda: trainer.gradients(next_batches()))
        worker.record(entry="waits", iteration=iteration, warm_up=iteration == 0, waited_ms=1e3 * waited)
    drop_gradients_and_wait(trainer, group)
    profile_step(worker, lambda: trainer.step(next_batches()))


def drop_gradients_and_wait(trainer: Trainer, group: dist.ProcessGroup | None) -> None:
    """Drop the gradients and wait for all ranks."""
    trainer.optimizer.zero_grad()
    fence(group)


class _SilentGather(DefaultAllGather):
    """An all-gather that sends nothing: the buffer keeps what the memory held before."""

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        return None


class _SilentScatter(DefaultReduceScatter):
    """A reduce-scatter that sends nothing."""

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        return None


@contextmanager
def without_communication(trainer: Trainer) -> Iterator[None]:
    """Take the communication out of a strategy; FSDP keeps copies, hooks and streams, DDP loses its buckets' work."""
    if trainer.strategy == "ddp":
        with trainer.wrapped.no_sync():
            yield
        return
    sharded: list[Any] = [module for module in trainer.wrapped.modules() if hasattr(module, "set_custom_all_gather")]
    for module in sharded:
        module.set_custom_all_gather(_SilentGather())
        module.set_custom_reduce_scatter(_SilentScatter())
    try:
        yield
    finally:
        for module in sharded:
            module.set_custom_all_gather(DefaultAllGather())
            module.set_custom_reduce_scatter(DefaultReduceScatter())


class _Waits:
    """What the computing stream waits for, seen by hooks.

    Sharded, a block begins when its parameters are there: from the end of one block's work to the beginning of the
    next one's lies the waiting, and the copying out of the gathered buffer. Replicated, the backward ends when the
    last bucket is back: what lies between the last gradient and that end is waiting.
    """

    def __init__(self, worker: Worker, trainer: Trainer):
        self.worker, self.trainer, self.tape = worker, trainer, Tape(worker.device)
        self.on, self.gaps, self.last = False, [], None
        if trainer.strategy == "ddp":
            for weight in trainer.weights():
                after_gradient(weight, self, _Waits.end)
        elif trainer.strategy != "single":
            for block in trainer.model.blocks:
                block.register_forward_pre_hook(self.begun)
                block.register_forward_hook(self.ended)

    def begun(self, block, args) -> None:
        self.begin()
        if self.on and args[0].requires_grad:
            args[0].register_hook(lambda gradient: self.end())

    def ended(self, block, args, output) -> None:
        self.end()
        if self.on:
            output.register_hook(lambda gradient: self.begin())

    def begin(self) -> None:
        if self.on and self.last is not None:
            self.gaps.append((self.last, self.tape.now()))
            self.last = None

    def end(self) -> None:
        if self.on:
            self.last = self.tape.now()

    def waited_s(self, work: Callable) -> float:
        """Return the seconds that the stream waited during `work`."""
        self.on, self.gaps, self.last = True, [], None
        zero = Clock(self.worker.device)
        work()
        if self.trainer.strategy == "ddp":
            self.begin()
        self.on = False
        self.worker.synchronize()
        if self.trainer.strategy != "ddp":
            self.gaps = self.inner(self.gaps)
        return sum(zero.seconds(end) - zero.seconds(start) for start, end in self.gaps)

    def inner(self, gaps: list) -> list:
        """Leave out the turn from forward to backward, where the head and the loss are computed."""
        turn = len(self.trainer.model.blocks) - 1
        return gaps[:turn] + gaps[turn + 1 :]
