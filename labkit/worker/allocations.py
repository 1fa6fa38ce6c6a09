"""Memory in use and who allocated it: by CUDA's allocator or, on a CPU, counted storage by storage."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.repository import CODE
from labkit.theory.allocations import fragments, largest, timeline
from labkit.theory.sizes import MIB

_MOST_EVENTS = 1_000_000  # allocations, releases and reservations that the history holds; the oldest go first
_OWN = tuple(f"{folder}/" for folder in CODE)
_SELF = str(Path(__file__).resolve())


class CountedMemory(TorchDispatchMode):
    """What tensors hold while it is on: `held` and `peak` in bytes, `events` as CUDA's allocator writes its history.

    Every operator's results are looked at: a storage that is new counts from then until nothing refers to it, and a
    change of its size, to nothing and back, counts, too. What a kernel needs inside, and lets go before it returns, is
    not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self.events: list[dict[str, Any]] = []
        self._living: dict[int, weakref.ref] = {}
        self._sizes: dict[int, int] = {}

    def __enter__(self) -> CountedMemory:
        self._resize, counted = torch.UntypedStorage.resize_, self

        def resize_(self: torch.UntypedStorage, size: int) -> None:
            counted._resize(self, size)
            counted._resized(self)

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *raised) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self._count(tensor.untyped_storage())
        self.peak = max(self.peak, self.held)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        address: Any = storage._cdata
        if address not in self._living and storage.nbytes():
            self._living[address] = weakref.ref(storage, lambda _: self._forget(address))
            self._sized(address, storage.nbytes(), _frames(sys._getframe(2)))

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """Note a storage's new size; one that no operator made since this is on counts from its next use on."""
        address: Any = storage._cdata
        if address in self._living:
            self._sized(address, storage.nbytes(), _frames(sys._getframe(2)))
            self.peak = max(self.peak, self.held)

    def _sized(self, address: int, size: int, frames: list | None = None) -> None:
        """Note that a storage has this size from now on, 0 where it is let go."""
        before = self._sizes.pop(address, 0)
        self.held += size - before
        if before:
            self._note("free_requested", address, before)
        if size:
            self._sizes[address] = size
            self._note("alloc", address, size, frames)

    def _forget(self, address: int) -> None:
        """Note that nothing refers to a storage any more."""
        del self._living[address]
        self._sized(address, 0)

    def _note(self, action: str, address: int, size: int, frames: list | None = None) -> None:
        event = {"action": action, "addr": address, "size": size, "frames": frames or []}
        self.events.append({"time_us": time.time_ns() / 1e3, **event})


def _frames(frame: FrameType | None) -> list[dict[str, Any]]:
    """Return the innermost frame of the workbook's own code, as the allocator's history lists frames."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OWN) and name != _SELF:
            return [{"filename": name, "line": frame.f_lineno, "name": frame.f_code.co_name}]
        frame = frame.f_back
    return []


class Meter:
    """Bytes in use since it was entered, and their peak: the allocator's on a GPU, counted on a CPU."""

    def __init__(self, worker: Any):
        self.worker = worker
        self.counted = None if worker.device.type == "cuda" else CountedMemory()
        self.base = 0

    def __enter__(self) -> Meter:
        gc.collect()
        if self.counted is not None:
            self.counted.__enter__()
        else:
            _wake_libraries(self.worker.device)
            self.worker.synchronize()
            self.base = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *raised) -> None:
        if self.counted is not None:
            self.counted.__exit__(*raised)

    def reset(self) -> None:
        """Have the peak count from here."""
        if self.counted is not None:
            self.counted.peak = self.counted.held
        else:
            self.worker.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def held_bytes(self) -> int:
        """Return the bytes in use now."""
        if self.counted is not None:
            return self.counted.held
        self.worker.synchronize()
        return torch.cuda.memory_allocated() - self.base

    def peak_bytes(self) -> int:
        """Return the most bytes in use since the last reset."""
        if self.counted is not None:
            return self.counted.peak
        self.worker.synchronize()
        return torch.cuda.max_memory_allocated() - self.base


def _wake_libraries(device: torch.device) -> None:
    """Multiply small matrices forward and backward: cuBLAS allocates its workspace, once per thread and precision."""
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(16, 16, device=device, dtype=dtype, requires_grad=True)
        (matrix @ matrix).sum().backward()


def record_allocations(
    worker: Any,
    phases: list[tuple[str, Callable[[], Any]]],
    iterations: int = 3,
    *,
    meter: Meter | None = None,
    lines: bool = False,
) -> None:
    """Run the phases in order, `iterations` times, and append which memory was in use when.

    `phases` are (name, work), the names "forward", "backward" and "optimizer"; what `work` returns is dropped, so
    its caller must keep a loss. The device is synchronised between phases. On a CPU the events are those that the
    `meter` counts; without one, nothing is done.
    Rows: entry="memory timeline" (t_ms, base_mib, activations_mib, gradients_mib, optimizer_mib, temporary_mib,
    allocated_mib, reserved_mib, phase); entry="segment" (segment_mib, allocated_mib, largest_free_mib, segments) at
    the end of the last backward, when the cache is most in pieces; with `lines`, entry="allocation" (size_mib, count,
    phase, line, source), the largest ones and the line of the workbook that made them.
    """
    counted = meter.counted if meter else None
    if worker.device.type != "cuda" and counted is None:
        return
    history = _Counted(counted) if counted else _Allocator(worker, lines)
    marks = []
    with history:
        for iteration in range(iterations):
            for name, work in phases:
                start_us = time.time_ns() / 1e3
                work()
                history.settle()
                marks.append((name, start_us, time.time_ns() / 1e3))
                if name == "backward" and iteration == iterations - 1:
                    history.look_at_segments()
        events = history.events()
    for row in timeline(events, marks, *history.before):
        worker.record(entry="memory timeline", **row)
    for row in fragments(history.segments):
        worker.record(entry="segment", **row)
    for row in largest(events, marks) if lines else ():
        worker.record(entry="allocation", **row)


class _Counted:
    """The events of storages counted on a CPU; nothing is reserved there."""

    def __init__(self, counted: CountedMemory):
        self.counted, self.segments = counted, []

    def __enter__(self) -> _Counted:
        self.first, self.before = len(self.counted.events), (self.counted.held / MIB, 0.0)
        return self

    def __exit__(self, *raised) -> None:
        pass

    def settle(self) -> None:
        pass

    def look_at_segments(self) -> None:
        pass

    def events(self) -> list[dict[str, Any]]:
        return self.counted.events[self.first :]


class _Allocator:
    """The history that CUDA's caching allocator keeps; with `lines`, it keeps Python's stack of each allocation."""

    def __init__(self, worker: Any, lines: bool):
        self.worker, self.segments = worker, []
        self.context: Any = "alloc" if lines else None

    def __enter__(self) -> _Allocator:
        self.worker.synchronize()
        stats = torch.cuda.memory_stats()
        requested, reserved = (stats[f"{what}_bytes.all.current"] / MIB for what in ("requested", "reserved"))
        self.before = (requested, reserved)
        options = {"context": self.context, "stacks": "python", "max_entries": _MOST_EVENTS}
        torch.cuda.memory._record_memory_history("all", **options)
        return self

    def __exit__(self, *raised) -> None:
        torch.cuda.memory._record_memory_history(enabled=None)

    def settle(self) -> None:
        self.worker.synchronize()

    def look_at_segments(self) -> None:
        segments = torch.cuda.memory_snapshot(include_traces=False)
        self.segments = [segment for segment in segments if segment["device"] == self.worker.device.index]

    def events(self) -> list[dict[str, Any]]:
        snapshot: Any = torch.cuda.memory._snapshot()
        return snapshot["device_traces"][self.worker.device.index]
