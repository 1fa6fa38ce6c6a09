"""What DistributedDataParallel sends, phase by phase, and the order of the images by epoch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.worker import Worker
from labkit.worker.counting import CollectiveCounter
from lessons.scaling.worker.epochs import make_feed
from lessons.scaling.worker.loop import EpochLoop

_SHOWN = 6  # numbers of an order


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
