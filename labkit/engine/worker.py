"""The far side of a launch: one process a GPU, which measures the plan's points and appends rows.

enter.py makes one Worker per process. A lab's worker module defines `measure(worker, point)`, and may define
`prepare(worker)`, which is called once before the first point.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from json import dumps  # a lab may patch the module's
from pathlib import Path
from time import monotonic, sleep  # a lab may patch the module's
from time import time as unix_time
from types import SimpleNamespace
from typing import Any, NoReturn

from labkit.engine import node_clock
from labkit.engine.json_lines import open_to_append, row_line
from labkit.engine.plan import Plan
from labkit.engine.processes import has_begun_to_end
from labkit.engine.run import Run

RESTART_STATUS = 75  # exit status: this point ended the process group; launch fresh workers for the points after it
MOST_PAUSE_S = 0.005  # between two looks at how the other ranks have ended a point
OF_THE_DRIVER = re.compile(r"CUDA( error|\]): out of memory")  # torch's AcceleratorError, Triton's RuntimeError
PEERS_SECONDS = 3  # how long a rank that ran out of memory waits for the others, who may be stuck in a collective


class Worker:
    """What a lab's worker code is given: who it is, a clock that synchronises, and `record`.

    Attributes: `rank`, `gpus` (how many workers), `gpu` (physical index, None on a CPU), `device`, `plan`, `state`
    (whatever `prepare` returned), `point` (the one being measured); `node` (from 0) of `nodes`, and `local_rank` there.
    """

    def __init__(self, run: Run):
        self.run, self.pid = run, os.getpid()
        self.plan: Any = None  # of the lab's own class, from `join` on
        self.state: Any = None
        self.point: Any = None  # the point that is measured now, with the knobs of its plan
        self.launch = os.environ["LABKIT_LAUNCH"]  # a lab may clear the environment
        launched = float(os.environ["LABKIT_LAUNCHED"])
        self._milestones = [(launched, ""), (process_start(), "the process starts")]
        self.rank, self.gpus = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.node, self.nodes = int(os.environ.get("GROUP_RANK", 0)), int(os.environ.get("GROUP_WORLD_SIZE", 1))
        self._peers: list[int] = []  # the pids of this node's ranks, once they have met
        self._rows, self._events = open_to_append(run.rows_file(self.rank)), open_to_append(run.events_file(self.rank))

    def join(self, plan: Plan, store: Any) -> None:
        """Meet the other workers at the store: a process group over NCCL for device tensors, gloo for host tensors."""
        import torch
        import torch.distributed as dist

        self.plan, self.gpu = plan, self.run.gpu(self.rank)
        self.device = torch.device("cuda", self.local_rank) if plan.device == "cuda" else torch.device("cpu")
        self.drives: Sequence[int] = [self.local_rank] if plan.device == "cuda" else []
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        self.store, self._store_file = store, getattr(store, "path", "")  # "": it is no file
        group = dist.PrefixStore("group", store)
        dist.init_process_group(backend, store=group, rank=self.rank, world_size=self.gpus)
        self._sync_tensor = torch.zeros(1)
        self._store_identity = self._file_identity()
        pids = torch.zeros(self.gpus, dtype=torch.int64)
        pids[self.rank] = self.pid
        dist.all_reduce(pids)
        self._peers = [pid for rank, pid in enumerate(pids.tolist()) if self.run.node_index(rank) == self.node]
        if self.nodes > 1:
            self.event("clock", **node_clock.align_clocks(self.rank, self.gpus, self.nodes))

    def misses_a_peer(self) -> bool:
        """Whether the process of another rank on this node has begun to end."""
        return any(has_begun_to_end(pid) for pid in self._peers)

    def note_milestone(self, what: str) -> None:
        """Note that a part of the start-up, `what`, is over."""
        self._milestones.append((monotonic(), what))

    def startup(self) -> list[tuple[float, float, str]]:
        """Return the parts of this process's start-up: began and ended, in seconds since the launch, and what."""
        launched = self._milestones[0][0]
        pairs = itertools.pairwise(self._milestones)
        return [(begun - launched, ended - launched, what) for (begun, _), (ended, what) in pairs]

    def event(self, name: str, **more: Any) -> None:
        """Report what this rank is at; the host's progress bar and its error messages read it."""
        self._events.write(dumps({"event": name, "time": unix_time(), "at": monotonic(), **more}) + "\n")
        if self.nodes > 1:  # a network's file system writes when it likes, or when it is told to
            for file in (self._rows, self._events) if name == "done" else (self._events,):
                os.fsync(file.fileno())

    def record(self, **measured: Any) -> None:
        """Append one row: this point's knobs, then `measured` (a unit in every name). It is on disk on return.

        Scalars of NumPy and torch become numbers. Raises TypeError, naming the field, for what JSON cannot hold, and
        RuntimeError outside `measure`, where there is no point.
        """
        self.require_own_process()
        if self.point is None:
            raise RuntimeError("a row belongs to a point: call record() inside measure()")
        where = {"node": self.node} if self.nodes > 1 else {}
        self._rows.write(row_line(self.rank, self.gpu, vars(self.point), where | measured))

    def require_own_process(self) -> None:
        """Raise RuntimeError in a process that the lab has forked: it would measure and write everything twice."""
        if os.getpid() != self.pid:
            how = "end it with os._exit(0), or start it with subprocess or multiprocessing"
            raise RuntimeError(f"a process that os.fork() made inside measure() has come back to the worker: {how}")

    def span(self, name: str, lane: str, start_us: float, end_us: float, **more: Any) -> None:
        """Append one finished span of a timeline."""
        self.record(span=name, lane=lane, start_us=round(start_us, 3), end_us=round(end_us, 3), **more)

    def barrier(self) -> None:
        """Wait for all workers, over gloo: no GPU kernel runs, so none can disturb what is measured next."""
        import torch.distributed as dist

        dist.all_reduce(self._sync_tensor)

    def synchronize(self) -> None:
        """Wait until every GPU in `drives` (its own, unless the lab says more) has done all its work."""
        import torch

        for gpu in self.drives:
            torch.cuda.synchronize(gpu)

    @contextmanager
    def clock(self) -> Iterator[SimpleNamespace]:
        """Time what stands inside, synchronised at both ends: `clock.seconds` afterwards."""
        timing = SimpleNamespace(seconds=float("nan"))
        self.synchronize()
        start = time.perf_counter()
        yield timing
        self.synchronize()
        timing.seconds = time.perf_counter() - start

    def time(
        self,
        work: Callable[[], Any],
        *,
        warm_ups: int | None = None,
        repeats: int | None = None,
        before: Callable[[], Any] = lambda: None,
    ) -> Iterator[SimpleNamespace]:
        """Run `work` warm_ups + repeats times; yield `iteration`, `warm_up`, `seconds` and `result` of each.

        A count that is None is the plan's. `before` runs ahead of every iteration, outside the clock (a barrier, a
        buffer to clear); so does whatever the loop over this generator does, such as checking the result.
        """
        first_timed = self.plan.warm_ups if warm_ups is None else warm_ups
        ended = first_timed + (self.plan.repeats if repeats is None else repeats)
        for iteration in range(ended):
            before()
            with self.clock() as timing:
                result = work()
            warm_up = iteration < first_timed
            yield SimpleNamespace(iteration=iteration, warm_up=warm_up, seconds=timing.seconds, result=result)

    def _file_identity(self) -> tuple[int, int] | None:
        """Return what tells the file at which the ranks meet from another one of its name; None where there is none."""
        try:
            about = os.stat(self._store_file)
        except OSError:
            return None
        return about.st_dev, about.st_ino

    def _require_meeting_place(self) -> None:
        """Raise RuntimeError where the ranks cannot meet any more: torch would wait for the file, or make another."""
        if self._store_file and self._file_identity() != self._store_identity:
            lost = f"the file at which the ranks meet, {self._store_file}, was removed or cannot be reached any more"
            advice = (
                "launch again, without chroot() in a worker or a cleaner of that folder; TMPDIR names another place"
            )
            raise RuntimeError(f"{lost}: {advice}")

    def agree(self, point: int, outcome: str) -> None:
        """Tell the other ranks how the point ended here; return where it ended in the same way on all.

        A rank that ran out of memory may have left the others inside a collective that it will never join, or with work
        queued for one. Where they end the point in another way, or not within PEERS_SECONDS, this process ends with
        RESTART_STATUS and the launcher starts fresh workers for the points that are left.
        """
        self._require_meeting_place()
        key = f"{self.launch}/point{point}/rank"
        self.store.set(f"{key}{self.rank}", outcome)
        deadline, pause_s = monotonic() + (math.inf if outcome == "ok" else PEERS_SECONDS), 10e-6
        keys = [f"{key}{rank}" for rank in range(self.gpus)]
        while not (complete := self.store.check(keys)) and monotonic() < deadline:
            sleep(pause_s)  # a FileStore's own wait() looks every 10 ms, which a sweep's short points would feel
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
            self._require_meeting_place()
        outcomes = {self.store.get(key).decode() for key in keys} if complete else set()
        if outcomes != {outcome}:
            self._restart()

    def _restart(self) -> NoReturn:
        """End this process, so that fresh workers measure the points after this one."""
        self.event("restart", point=self.point.point)
        os._exit(RESTART_STATUS)

    def _free_bytes(self) -> float:
        """Return what is free on the fullest of the ranks' GPUs; without GPUs of the host's memory."""
        import psutil
        import torch
        import torch.distributed as dist

        on_gpu = self.device.type == "cuda"
        free = torch.tensor(torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available)
        dist.all_reduce(free, dist.ReduceOp.MIN)
        return free.item()

    def measure_points(self, lab: Any, first_point: int) -> None:
        """Measure every point from `first_point` on; one that runs out of memory is a row that says so.

        What needs a newer GPU, or more than is free at the start, is not tried.
        """
        import torch

        free, newest = self._free_bytes(), (math.inf, 0)
        capability = torch.cuda.get_device_capability() if self.device.type == "cuda" else newest
        for point in self.plan.points()[first_point:]:
            self.point = point
            self.event("point", point=point.point)
            outcome = "ok"
            try:
                if (least := self.plan.needed_capability(point)) > capability:
                    self.record(status=f"needs compute capability {least[0]}.{least[1]}")
                elif (needed := self.plan.needed_bytes(point)) > free:
                    self.record(status="does not fit", needed_bytes=needed, free_bytes=free)
                else:
                    lab.measure(self, point)
            except RuntimeError as error:  # torch.OutOfMemoryError is one
                by_the_driver = OF_THE_DRIVER.search(str(error)) is not None
                if not by_the_driver and not isinstance(error, torch.OutOfMemoryError):
                    raise
                outcome = "out of memory"
                self.record(status=outcome)
                if by_the_driver:  # as while a CUDA graph is captured, or by Triton: what was begun cannot be ended
                    self._restart()
            self.require_own_process()
            self.agree(point.point, outcome)
            self.event("done", point=point.point)
            if outcome != "ok":
                torch.cuda.empty_cache()


def process_start() -> float:
    """Return when this process was started, by the monotonic clock (proc_pid_stat(5): field 22, in clock ticks).

    The ticks count from the boot of the machine. In a container, /proc/uptime may count from the container's start.
    """
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return monotonic() - age
