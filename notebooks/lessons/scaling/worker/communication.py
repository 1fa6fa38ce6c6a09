"""What a step's all-reduce costs, three ways and alone, DataParallel beside it; what DDP sends, phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.worker import Worker
from labkit.worker.clocks import fence
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.trace import profile_step
from lessons.scaling.worker.epochs import make_feed
from lessons.scaling.worker.loop import EpochLoop

_SHOWN = 6  # numbers of an order


def communicate(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one strategy: DataParallel in the first process alone, DDP in all that the point uses."""
    (_data_parallel if point.strategy == "dp" else three_ways)(worker, point)


def _batch(worker: Worker, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = torch.arange(count, device=worker.device) % len(worker.state.training.labels)
    return worker.state.training.pixels[chosen], worker.state.training.labels[chosen]


def _record_times(worker: Worker, entry: str, work: Callable, before: Callable = lambda: None) -> None:
    """Append a row of `entry` per timed call of `work`, in ms."""
    for timing in worker.time(work, before=before):
        worker.record(
            entry=entry, iteration=timing.iteration, warm_up=timing.warm_up, **{f"{entry}_ms": 1e3 * timing.seconds}
        )


def three_ways(worker: Worker, point: SimpleNamespace) -> None:
    """Append rows that show what a step's all-reduce costs, by two step times, by hooks, and in a trace."""
    loop, group = EpochLoop(worker, point), worker.state.groups[point.ranks]
    images, labels = loop.ready(*_batch(worker, point.gpu_batch))

    def step() -> None:
        loop.gradients(images, labels)
        loop.update()

    def settle() -> None:
        loop.optimizer.zero_grad()
        fence(group)

    _record_times(worker, "step", step, settle)
    # 1. two step times: with the all-reduce, and without
    _record_times(worker, "gradients", lambda: loop.gradients(images, labels), settle)
    with loop.wrapped.no_sync():
        _record_times(worker, "muted", lambda: loop.gradients(images, labels), settle)
    # 2. hooks: from the last gradient to the end of backward, in the stream
    for iteration in range(worker.plan.repeats):
        settle()
        loop.begin()
        loop.gradients(images, labels)
        worker.synchronize()
        worker.record(entry="waited", iteration=iteration, waited_ms=loop.ended()["exposed"])
    settle()
    _record_exchange_alone(worker, step, group)
    # 3. the trace; the tracer has all ranks meet
    if point.ranks == worker.gpus:
        profile_step(worker, step)


def _record_exchange_alone(worker: Worker, step: Callable, group: dist.ProcessGroup | None) -> None:
    """Append a row of the gradients that a step sends, and rows of the same all-reduces when nothing else runs."""
    with CollectiveCounter() as sent:
        step()
    sizes = [size for name, size in sent.each if name == "all-reduce"]
    tensors = [torch.zeros(size // 4, device=worker.device) for size in sizes]
    worker.record(entry="sent", iteration=0, calls=len(sizes), sent_bytes=sum(sizes))

    def exchange() -> None:
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
            work.wait()  # pyright: ignore[reportOptionalMemberAccess]

    _record_times(worker, "alone", exchange, lambda: fence(group) and None)


def _data_parallel(worker: Worker, point: SimpleNamespace) -> None:
    """Append rows of whole steps of DataParallel: the first process drives all GPUs, and its own gathers and reduces.

    A step runs in new threads, and cuDNN's plans are kept per thread: with `cudnn.benchmark` each step would search.
    """
    if worker.rank:
        return
    loop = EpochLoop(worker, point, alone=True)
    loop.wrapped = nn.DataParallel(loop.model, list(range(point.ranks)))
    images, labels = loop.ready(*_batch(worker, point.batch))

    def step() -> None:
        loop.gradients(images, labels)
        loop.update()

    _record_times(worker, "step", step)


def record_messages(worker: Worker, point: SimpleNamespace) -> None:
    """Append rows "message" (phase, collective, calls, sent_bytes) and "order" (epoch, set_epoch, numbers)."""
    group = worker.state.groups[point.ranks]
    devices: Any = [worker.device] if worker.device.type == "cuda" else None
    batches = make_feed(worker, point)
    batch = next(iter(batches.epoch(0)))
    loop = EpochLoop(worker, point, alone=True)

    def wrap(**options: Any) -> None:
        loop.wrapped = DistributedDataParallel(loop.model, devices, process_group=group, **options)

    def step() -> None:
        loop.step(*batch)

    _record_messages_of(worker, "construction", wrap)
    for name in ("first step", "second step", "third step"):
        _record_messages_of(worker, name, step)
    with loop.wrapped.no_sync():
        _record_messages_of(worker, "a step under no_sync", step)
        _record_messages_of(worker, "a second step under no_sync", step)
    loop = EpochLoop(worker, point, alone=True)
    wrap(broadcast_buffers=False)
    for _ in range(3):
        step()
    _record_messages_of(worker, "a step without broadcast_buffers", step)
    if worker.device.type == "cuda":
        loop = EpochLoop(worker, point, alone=True)
        loop.model = nn.SyncBatchNorm.convert_sync_batchnorm(loop.model, group)
        wrap()
        for _ in range(3):
            step()
        _record_messages_of(worker, "a step with SyncBatchNorm", step)
    for set_epoch in (True, False):
        order = make_feed(worker, point, reshuffle=set_epoch)
        for epoch in range(3):
            worker.record(entry="order", set_epoch=set_epoch, epoch=epoch, numbers=order.order(epoch)[:_SHOWN])


def _record_messages_of(worker: Worker, phase: str, work: Callable) -> None:
    """Append a row per kind of collective that is called during `work`; one without calls where there is none."""
    with CollectiveCounter() as sent:
        work()
    worker.synchronize()
    for collective in sent.calls or ["none"]:
        size = {"calls": sent.calls[collective], "sent_bytes": sent.bytes[collective]}
        worker.record(entry="message", phase=phase, collective=collective, **size)
