"""The far side of a launch: one process a GPU, which measures the plan's points and appends rows.

The agent calls `enter` in a fresh process once a rank; a bare torchrun may run `-m labkit.engine.worker RUN`. A lab's
worker module gives `measure(worker, point)`, and may give `prepare(worker)`, called once before the first point.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

from labkit.engine.plan import Plan
from labkit.engine.run import Run

PR_SET_PDEATHSIG = 1
AGENT_SETS = ("RANK", "LOCAL_", "WORLD_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "TORCH_NCCL_ASYNC")
RESTART = 75  # exit status: this point ended the process group; launch fresh workers for the points after it
PEERS_SECONDS = 10  # how long a rank that ran out of memory waits for the others, who may be stuck in a collective


def enter(folder: str, first_point: int, environment: dict[str, str]) -> None:
    """Become a worker of the run, in a process that the forkserver has just made.

    What torchrun's agent has set (ranks, addresses) is kept; the rest of the environment is the kernel's.
    """
    os.setsid()  # a process group of its own, as under torchrun
    run = Run(folder)
    wear(run.mark)
    end_with_parent()
    if run.stop_file.exists():
        os._exit(1)
    given = {name: value for name, value in os.environ.items() if name.startswith(AGENT_SETS)}
    os.environ.clear()
    os.environ.update(environment | given)
    sys.path[:] = dict.fromkeys([*os.environ["PYTHONPATH"].split(os.pathsep), *sys.path])

    import torch

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))  # the library was loaded before the variable was set
    main(folder, first_point)


def wear(mark: str) -> None:
    """Write the run's mark over its placeholder in this process's initial environment.

    That is what /proc shows of it, and what every process forked from it inherits; os.environ would reach only those
    that are executed anew.
    """
    first = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in itertools.takewhile(bool, (first[i] for i in itertools.count())):
        if ctypes.string_at(address).startswith(b"LABKIT_RUN="):
            ctypes.memmove(address + len("LABKIT_RUN="), mark.encode(), len(mark))


def end_with_parent() -> None:
    """Have this process killed when its parent ends (prctl(2)): the forkserver, which ends with the agent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Worker:
    """What a lab's worker code is given: who it is, a clock that synchronises, and `record`.

    Attributes: `rank`, `gpus` (how many workers), `gpu` (physical index, None on a CPU), `device`, `plan`, `state`
    (whatever `prepare` returned), `point` (the one being measured).
    """

    def __init__(self, run: Run):
        self.run, self.plan, self.state, self.point = run, None, None, None
        launched = float(os.environ["LABKIT_LAUNCHED"])
        self._milestones = [(launched, ""), (_process_start(), "the process starts")]
        self.rank, self.gpus = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._rows, self._events = append(run.rows_file(self.rank)), append(run.events_file(self.rank))

    def join(self, plan: Plan, alone: bool = False) -> None:
        """Meet the other workers: a process group over NCCL for device tensors and gloo for host tensors.

        `alone` meets nobody: one process, as for a debugger.
        """
        import torch
        import torch.distributed as dist

        self.plan, self.gpu = plan, self.run.gpu(self.rank)
        self.device = torch.device("cuda", self.rank) if plan.device == "cuda" else torch.device("cpu")
        self.drives = [self.rank] if plan.device == "cuda" else []
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        self.store, rank, size = (dist.HashStore(), 0, 1) if alone else next(dist.rendezvous("env://"))
        dist.init_process_group(backend, store=dist.PrefixStore("group", self.store), rank=rank, world_size=size)
        self._sync_tensor = torch.zeros(1)

    def reached(self, what: str) -> None:
        """Note that a part of the start-up, `what`, is over."""
        self._milestones.append((time.time(), what))

    def startup(self) -> list[tuple[float, float, str]]:
        """Give the parts of this process's start-up: began and ended, in seconds since the launch, and what."""
        launched = self._milestones[0][0]
        pairs = itertools.pairwise(self._milestones)
        return [(begun - launched, ended - launched, what) for (begun, _), (ended, what) in pairs]

    def event(self, name: str, **more: Any) -> None:
        """Report what this rank is at; the host's progress bar and its error messages read it."""
        self._events.write(json.dumps({"time": time.time(), "event": name, **more}) + "\n")

    def record(self, **measured: Any) -> None:
        """Append one row: this point's knobs, then `measured` (a unit in every name). It is on disk on return."""
        who = {"point": self.point.point, "rank": self.rank, "gpu": self.gpu, "seed": self.point.seed}
        row = {**who, **vars(self.point), "status": "ok", "warm_up": False, **measured}
        self._rows.write(json.dumps(row) + "\n")

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
        self, work: Callable[[], Any], *, warm_ups: int, repeats: int, before: Callable[[], Any] = lambda: None
    ) -> Iterator[SimpleNamespace]:
        """Run `work` warm_ups + repeats times; yield `iteration`, `warm_up`, `seconds` and `result` of each.

        `before` runs ahead of every iteration, outside the clock (a barrier, a buffer to clear); so does whatever the
        loop over this generator does, such as checking the result.
        """
        for iteration in range(warm_ups + repeats):
            before()
            with self.clock() as timing:
                result = work()
            warm_up = iteration < warm_ups
            yield SimpleNamespace(iteration=iteration, warm_up=warm_up, seconds=timing.seconds, result=result)

    def agree(self, outcome: str) -> list[str]:
        """Tell the other ranks how this point ended here, and learn how it ended there.

        A rank that ran out of memory may have left the others inside a collective that it will never join. Where they
        do not answer within PEERS_SECONDS, this process ends with RESTART and the launcher starts fresh workers.
        """
        from datetime import timedelta

        key = f"{os.environ['LABKIT_LAUNCH']}/point{self.point.point}/rank"
        self.store.set(f"{key}{self.rank}", outcome)
        patience = timedelta(days=1) if outcome == "ok" else timedelta(seconds=PEERS_SECONDS)
        keys = [f"{key}{rank}" for rank in range(self.gpus)]
        try:
            self.store.wait(keys, patience)
        except RuntimeError:  # DistStoreError in newer torch: a time-out
            self.event("restart", point=self.point.point)
            os._exit(RESTART)
        return [self.store.get(key).decode() for key in keys]

    def measure_points(self, lab: Any, first_point: int) -> None:
        """Measure every point from `first_point` on; one that runs out of memory is a row that says so."""
        import torch

        for point in self.plan.points()[first_point:]:
            self.point = point
            self.event("point", point=point.point)
            outcome = "ok"
            try:
                lab.measure(self, point)
            except torch.OutOfMemoryError:
                outcome = "out of memory"
                self.record(status=outcome)
            self.agree(outcome)
            self.event("done", point=point.point)
            if outcome != "ok":
                torch.cuda.empty_cache()


def main(folder: str, first_point: int | str = 0) -> None:
    """Run one rank from start to end; whatever it raises is reported in its events before the process ends."""
    run = Run(folder)
    rank = int(os.environ["RANK"])
    log = os.open(run.log_file(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1), os.dup2(log, 2)  # prints of this process and of the C libraries under it
    import faulthandler

    faulthandler.register(signal.SIGUSR1, file=run.stack_file(rank).open("w"), all_threads=True)
    worker = Worker(run)
    worker.event("started", pid=os.getpid())
    try:
        worker.reached("Python starts")
        lab = importlib.import_module(json.loads(run.plan_file.read_text())["worker"])
        worker.reached("torch is imported")
        worker.join(run.plan)
        if hasattr(lab, "prepare"):
            worker.state = lab.prepare(worker)
        worker.barrier()
        worker.reached("the ranks meet")
        worker.event("ready")
        worker.measure_points(lab, int(first_point))
        worker.event("finished")
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        sys.stderr.write(text)
        sys.stderr.flush()
        point = getattr(worker.point, "point", None)
        worker.event("raised", kind=type(error).__name__, message=_message(error), traceback=text, point=point)
        os._exit(1)  # without the clean-up of a process group whose peers may be stuck
    worker.barrier()
    sys.stdout.flush()

    import torch.distributed as dist

    dist.destroy_process_group()


def append(file: Path) -> TextIO:
    """Open a file of JSON lines for more, on a fresh line: a killed worker may have left its last one half-written."""
    lines = file.open("a", buffering=1)
    if lines.tell():
        lines.write("\n")
    return lines


def _process_start() -> float:
    """When this process was started, in Unix seconds (proc_pid_stat(5): field 22, in clock ticks since boot)."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        age = float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the student's own exception class may be the broken one
        return "(its message could not be read)"


if __name__ == "__main__":
    end_with_parent()
    main(*sys.argv[1:])
