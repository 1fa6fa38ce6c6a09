"""Lanes: the roads that a copy can take, each with its own stream, so that copies on different roads overlap."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Copy:
    """One copy that was handed to a lane: what, where, after which others, and how to wait for it."""

    lane: str
    target: torch.Tensor
    origin: torch.Tensor
    after: tuple[Copy, ...]
    waited: tuple[Copy, ...] = ()  # each lane's last copy that the caller had waited for before it asked for this one
    done: Any = None  # a device event, or a future on a CPU
    begun: Any = None
    start_us: float = float("nan")
    end_us: float = float("nan")

    @classmethod
    def from_tensors(cls, lane: str, target: torch.Tensor, origin: torch.Tensor, after: Copy | None, log: Log) -> Copy:
        """Return a copy that can be made, or say what is wrong with it: TypeError or ValueError."""
        if not (isinstance(target, torch.Tensor) and isinstance(origin, torch.Tensor)):
            kinds = f"{type(target).__name__} and {type(origin).__name__}"
            raise TypeError(f"{lane}: copy(target, origin) takes two tensors, not {kinds}")
        if target.shape != origin.shape or target.dtype != origin.dtype:
            raise ValueError(f"{lane}: {origin.numel()} elements do not fit a target of {target.numel()}")
        if not (target.is_contiguous() and origin.is_contiguous()):
            raise ValueError(f"{lane}: a copy takes elements that lie one after another; this slice skips some")
        if after is not None and not isinstance(after, Copy):
            raise TypeError(f"{lane}: after= takes what an earlier copy() gave, not {type(after).__name__}")
        return cls(lane, target, origin, (after,) if after else (), tuple(log.over.values()))

    def wait(self) -> None:
        """Block the calling thread until this copy has arrived."""
        self.done.result() if isinstance(self.done, Future) else self.done.synchronize()


class Log(list[Copy]):
    """Every copy in the order it was asked for; `over` maps a lane to its last copy that the caller has waited for.

    `before_wait` is called ahead of every wait.
    """

    def __init__(self):
        super().__init__()
        self.over: dict[str, Copy] = {}
        self.before_wait: Callable[[], None] = lambda: None

    def note_wait(self, lane: str) -> None:
        """Note that all copies which the lane was given so far are over."""
        if (last := next((copy for copy in reversed(self) if copy.lane == lane), None)) is not None:
            self.over[lane] = last

    def unfinished(self) -> list[Copy]:
        """Return the copies that no wait of the caller covers, directly or as what a waited-for copy awaits."""
        covered: set[int] = set()
        ahead: dict[str, Copy] = {}
        before: dict[int, list[Copy]] = {}
        for copy in self:
            before[id(copy)] = [*copy.after, *copy.waited, *([ahead[copy.lane]] if copy.lane in ahead else [])]
            ahead[copy.lane] = copy
        todo = [*self.over.values()]
        while todo:
            if id(copy := todo.pop()) not in covered:
                covered.add(id(copy))
                todo += before.get(id(copy), [])
        return [copy for copy in self if id(copy) not in covered]

    def clear(self) -> None:
        super().clear()
        self.over.clear()


class Lane:
    """A road between two devices, or from the host to one: a stream, whose copies happen in the order given.

    Copies are asked of the CUDA runtime itself. `Tensor.copy_` between GPUs also waits for the receiver's current
    stream, and that event can stand in a hardware queue behind host copies that were asked for later: then nothing
    overlaps.
    """

    def __init__(self, name: str, ends: list[torch.device], log: Log, timed: bool):
        from cuda.bindings import runtime  # comes with torch's CUDA build

        self.name, self.log, self.timed, self.runtime = name, log, timed, runtime
        self.stream = torch.cuda.Stream(ends[0])  # of the sending GPU, or of the GPU that pulls from the host
        torch.empty(1, device=ends[-1]).copy_(torch.empty(1, device=ends[0]))  # torch lets the two reach each other

    def copy(self, target: torch.Tensor, origin: torch.Tensor, after: Copy | None = None) -> Copy:
        """Start copying `origin` to `target` once the copy `after` has arrived; return this copy, to be waited for."""
        this = Copy.from_tensors(self.name, target, origin, after, self.log)
        if after:
            self.stream.wait_event(after.done)
        if self.timed:
            this.begun = self.stream.record_event(torch.cuda.Event(enable_timing=True))
        self.enqueue(target, origin)
        this.done = self.stream.record_event(torch.cuda.Event(enable_timing=self.timed))
        self.log.append(this)
        return this

    def enqueue(self, target: torch.Tensor, origin: torch.Tensor) -> None:
        """Ask the CUDA runtime for the copy, in this lane's stream."""
        where, size = (target.data_ptr(), origin.data_ptr()), origin.numel() * origin.element_size()
        kind = self.runtime.cudaMemcpyKind.cudaMemcpyDefault  # the addresses tell the devices
        (error,) = self.runtime.cudaMemcpyAsync(*where, size, kind, self.stream.cuda_stream)
        if error != self.runtime.cudaError_t.cudaSuccess:
            raise RuntimeError(f"{self.name}: the copy was refused: {error.name}")

    def wait(self) -> None:
        """Wait until every copy on this lane has arrived."""
        self.log.before_wait()
        self.stream.synchronize()
        self.log.note_wait(self.name)


class ThreadLane:
    """The same road on a machine without GPUs: one thread that copies between host buffers, in order."""

    def __init__(self, name: str, log: Log):
        self.name, self.log = name, log
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def copy(self, target: torch.Tensor, origin: torch.Tensor, after: Copy | None = None) -> Copy:
        """Start copying `origin` to `target` once the copy `after` has arrived; return this copy, to be waited for."""
        this = Copy.from_tensors(self.name, target, origin, after, self.log)
        this.done = self.thread.submit(self._do, this)
        self.log.append(this)
        return this

    @staticmethod
    def _do(this: Copy) -> None:
        for earlier in this.after:
            earlier.done.result()
        this.start_us = time.perf_counter() * 1e6
        this.target.copy_(this.origin)
        this.end_us = time.perf_counter() * 1e6

    def wait(self) -> None:
        """Wait until every copy on this lane has arrived."""
        self.log.before_wait()
        last: Future = self.thread.submit(int)
        last.result()
        self.log.note_wait(self.name)


class Lanes:
    """All lanes of the machine: `host(gpu)` into a GPU, `peer(a, b)` from GPU a to GPU b. `log` lists every copy.

    With `timed`, device events around every copy make a timeline; that costs a little, so timed repeats go without.
    """

    def __init__(self, devices: list[torch.device], *, timed: bool = False):
        self.devices, self.timed, self.log = devices, timed, Log()
        self._lanes: dict[str, Lane | ThreadLane] = {}

    def host(self, gpu: int) -> Lane | ThreadLane:
        """The lane from host memory to `gpu`: its PCIe link."""
        return self._lane(f"host → {gpu}", [self.devices[gpu]])

    def peer(self, origin: int, target: int) -> Lane | ThreadLane:
        """The lane from one GPU to another: NVLink where they have it."""
        return self._lane(f"{origin} → {target}", [self.devices[origin], self.devices[target]])

    def others(self, gpu: int) -> list[int]:
        """All GPUs but `gpu`."""
        return [other for other in range(len(self.devices)) if other != gpu]

    @staticmethod
    def parts(elements: int, chunks: int, first: int = 0) -> list[slice]:
        """Cut `elements` elements, from `first` on, into `chunks` equal slices."""
        step = elements // chunks
        return [slice(start, start + step) for start in range(first, first + elements, step)]

    def wait(self) -> None:
        """Wait until every copy on every lane has arrived."""
        for lane in self._lanes.values():
            lane.wait()

    def in_flight(self) -> int:
        """Return how many copies of the log have not arrived yet."""
        over = (copy.done.done() if isinstance(copy.done, Future) else copy.done.query() for copy in self.log)
        return sum(not done for done in over)

    def _lane(self, name: str, ends: list[torch.device]) -> Lane | ThreadLane:
        if name not in self._lanes:
            on_gpu = self.devices[0].type == "cuda"
            self._lanes[name] = Lane(name, ends, self.log, self.timed) if on_gpu else ThreadLane(name, self.log)
        return self._lanes[name]

    def timeline(self) -> list[Copy]:
        """Return the log with start_us and end_us filled in, from the first copy's start; call it after `wait`.

        Events of different GPUs share no clock: each GPU's times count from an event that was recorded on it when all
        GPUs stood still (`anchor`), which leaves them apart by some tens of microseconds.
        """
        for copy in self.log:
            if copy.begun is not None:
                anchor = self._anchors[copy.begun.device]
                copy.start_us = 1e3 * anchor.elapsed_time(copy.begun)
                copy.end_us = 1e3 * anchor.elapsed_time(copy.done)
        begin = min((copy.start_us for copy in self.log), default=0.0)
        for copy in self.log:
            copy.start_us, copy.end_us = copy.start_us - begin, copy.end_us - begin
        return self.log

    def anchor(self) -> None:
        """Empty the log, stand still, and record the event from which each GPU's timeline counts."""
        self.log.clear()
        if self.devices[0].type != "cuda":
            return
        self._anchors = {}
        for device in self.devices:
            torch.cuda.synchronize(device)
        for device in self.devices:
            with torch.cuda.device(device):
                self._anchors[device] = torch.cuda.current_stream().record_event(torch.cuda.Event(enable_timing=True))

    def close(self) -> None:
        """End the threads that stood in for streams."""
        for lane in self._lanes.values():
            if isinstance(lane, ThreadLane):
                lane.thread.shutdown()
