"""Follow a run from the host: its progress, its stalls, and the end of every process; the one place that ends any."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from labkit.engine.errors import LauncherLost, RunError, WorkerDied, WorkerHung, WorkerRaised
from labkit.engine.run import Run, read_lines
from labkit.engine.worker import RESTART

POLL_SECONDS = 0.05
GRACE_SECONDS = 3.0  # between asking a process to end and killing it
SETTLE_SECONDS = 2.0  # after the first bad news: time for the other ranks and torchrun to tell their part
MARK = "LABKIT_RUN"  # every process of a run, grandchildren too, inherits this variable with the run's folder in it

# What a rank reports when another one is gone: never the first cause.
VICTIM = re.compile(r"connection (was )?(closed|reset)|broken pipe|remote process exited|peer|socket timeout", re.I)


def members(run: Run) -> list[psutil.Process]:
    """Give the living processes that belong to the run, told by the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(run.folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
    return found


def end(run: Run) -> None:
    """End every process of the run: ask, wait GRACE_SECONDS, kill, until none is left.

    psutil sends no signal to a pid whose start time differs from the one it saw, so a reused pid is safe.
    """
    with uninterrupted():
        deadline = time.monotonic() + GRACE_SECONDS
        while alive := members(run):
            for process in alive:
                _signal(process, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            psutil.wait_procs(alive, timeout=max(0.2, deadline - time.monotonic()))


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:  # it ended by itself
        return


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off a KeyboardInterrupt until what stands inside is done (in the main thread, where it would be raised)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


class Watch:
    """Follows one launch of a run; `follow` returns the point to go on from, or raises what went wrong.

    `patience_s` bounds the time without any sign (a row, an event), `limit_s` the whole launch.
    """

    def __init__(self, run: Run, torchrun: subprocess.Popen, bar: Any, *, patience_s: float, limit_s: float):
        self.run, self.torchrun, self.bar = run, torchrun, bar
        self.patience_s, self.limit_s = patience_s, limit_s
        self.ranks = range(run.plan.gpus)
        self.points = run.plan.points()
        self.skip = {rank: len(read_lines(run.events_file(rank))) for rank in self.ranks}  # of earlier launches
        self.sizes: dict[Path, int] = {}

    def events(self, rank: int, name: str = "") -> list[dict]:
        """Give what the rank reported in this launch, all or by name."""
        found = read_lines(self.run.events_file(rank))[self.skip[rank] :]
        return [event for event in found if event["event"] == name] if name else found

    def follow(self) -> int:
        """Wait for the end; give the first point that is still to be measured (one past the last when all are).

        Raises WorkerRaised, WorkerDied, WorkerHung or LauncherLost.
        """
        started = last_sign = time.monotonic()
        while self.torchrun.poll() is None:
            if self._has_news():
                last_sign = time.monotonic()
                self._show_progress()
                if any(self.events(rank, "raised") for rank in self.ranks):
                    break
            if time.monotonic() - last_sign > self.patience_s:
                raise self._hung(f"for {self.patience_s:.0f} s no rank made progress")
            if time.monotonic() - started > self.limit_s:
                raise self._hung(f"the run outlasted its limit of {self.limit_s:.0f} s")
            time.sleep(POLL_SECONDS)
        return self._outcome()

    def ready(self) -> float | None:
        """The time (Unix seconds) at which the last rank was ready to measure; None while one is not."""
        times = [event["time"] for rank in self.ranks for event in self.events(rank, "ready")]
        return max(times) if len(times) == len(self.ranks) else None

    def _has_news(self) -> bool:
        before = dict(self.sizes)
        for rank in self.ranks:
            for file in (self.run.events_file(rank), self.run.rows_file(rank)):
                self.sizes[file] = file.stat().st_size if file.exists() else 0
        return self.sizes != before

    def _show_progress(self) -> None:
        done = min(max((e["point"] + 1 for e in self.events(rank, "done")), default=0) for rank in self.ranks)
        self.bar.set_description_str(f"{self.run.plan.lab}: {'measuring' if self.ready() else 'starting'}", refresh=False)
        self.bar.update(max(done, self.bar.n) - self.bar.n)

    def _outcome(self) -> int:
        """Judge an ended launch: wait for the other ranks' own words, then name the first cause."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.torchrun.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._show_progress()
        if all(self.events(rank, "finished") for rank in self.ranks):
            return len(self.points)
        restarts = [event["point"] for rank in self.ranks for event in self.events(rank, "restart")]
        if restarts:
            return max(restarts) + 1
        raise self._first_cause()

    def _first_cause(self) -> RunError:
        raised = [(event["time"], rank, event) for rank in self.ranks for event in self.events(rank, "raised")]
        culprits = sorted((item for item in raised if not VICTIM.search(item[2]["message"])), key=lambda item: item[0])
        if culprits:
            return self._raised(*culprits[0][1:])
        if (death := self._first_death()) is not None:
            return self._died(*death)
        if raised:
            return self._raised(*min(raised)[1:])
        log = self.run.launcher_log.read_text(errors="replace")[-2000:]
        return LauncherLost(f"torchrun ended with status {self.torchrun.poll()} and no worker had failed", run=self.run, detail=log)

    def _raised(self, rank: int, event: dict) -> RunError:
        sentence = f"{self.who(rank)} raised {event['kind']}: {event['message']} {self.where(event['point'])}"
        return WorkerRaised(sentence, run=self.run, rank=rank, point=event["point"], detail=event["traceback"])

    def _first_death(self) -> tuple[int, int] | None:
        """Give (rank, exit status) of the first worker that torchrun saw fail; None where it saw none.

        Torchrun's summary names each failed rank and its exit status; a rank that spoke for itself is no death.
        """
        log = self.run.launcher_log.read_text(errors="replace")
        found = re.findall(r"rank\s+: (\d+) \(local_rank: \d+\)\s+exitcode\s+: (-?\d+)", log.partition("Root Cause")[2])
        silent = [rank for rank in self.ranks if not self.events(rank, "finished") and not self.events(rank, "raised")]
        for rank, status in found:
            if int(rank) in silent:
                return int(rank), int(status)
        return (silent[0], 0) if silent and self.torchrun.poll() == 0 else None

    def _died(self, rank: int, status: int) -> RunError:
        how = f"ended with exit status {status} before it had finished"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        if status == -signal.SIGKILL:
            how += " (where nobody sent it, the system had run out of memory)"
        points = self.events(rank, "point")
        point = points[-1]["point"] if points else None
        tail = "".join(self.run.log(rank).splitlines(keepends=True)[-20:])
        return WorkerDied(f"{self.who(rank)} {how} {self.where(point)}", run=self.run, rank=rank, point=point, detail=tail)

    def _hung(self, why: str) -> RunError:
        """Dump every rank's Python stack, then say where each one stands."""
        for process in members(self.run):
            if any(event["pid"] == process.pid for rank in self.ranks for event in self.events(rank, "started")):
                _signal(process, signal.SIGUSR1)
        time.sleep(0.3)  # faulthandler writes at once; the disk may take a moment
        standing = [self.stands(rank) for rank in self.ranks]
        stuck = next((rank for rank in self.ranks if not self.events(rank, "finished")), 0)
        points = self.events(stuck, "point")
        point = points[-1]["point"] if points else None
        detail = "\n".join(f"rank {rank}: {text}" for rank, text in zip(self.ranks, standing, strict=True))
        return WorkerHung(f"{why} {self.where(point)}; ", run=self.run, rank=stuck, point=point, detail=detail)

    def stands(self, rank: int) -> str:
        """Say in a few words where the rank is: its last event and the innermost line of the lab's own code."""
        events = self.events(rank)
        if not events:
            return "has not started"
        if events[-1]["event"] in ("finished", "raised", "restart"):
            return f"has {events[-1]['event']}"
        stack = self.run.stack_file(rank)
        frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stack.read_text() if stack.exists() else "")
        own = [frame for frame in frames if "site-packages" not in frame[0] and "/engine/" not in frame[0]]
        inner = [name for path, _, name in frames if "torch/distributed" in path]
        place = f"{Path(own[0][0]).name}:{own[0][1]} in {own[0][2]}" if own else f"after {events[-1]['event']!r}"
        return f"waits in {inner[-1]} ({place})" if inner else f"is at {place}"

    def who(self, rank: int) -> str:
        gpu = self.run.gpu(rank)
        return f"rank {rank}" if gpu is None else f"rank {rank} (GPU {gpu})"

    def where(self, point: int | None) -> str:
        if point is None:
            return "before the first point"
        knobs = ", ".join(f"{name}={value}" for name, value in vars(self.points[point]).items() if name != "point")
        return f"at point {point} ({knobs})"
