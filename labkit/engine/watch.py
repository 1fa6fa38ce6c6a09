"""Follow a run from the host: its progress, its stalls, and the end of every process; the one place that ends any."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from labkit.engine.diagnosis import Diagnosis, size
from labkit.engine.errors import RunError
from labkit.engine.run import Run

POLL_SECONDS = 0.05
START_SECONDS = 180.0  # the least patience while workers start: importing torch from a busy disk takes its time
GRACE_SECONDS = 3.0  # between asking a process to end and killing it
SETTLE_SECONDS = 2.0  # after the first bad news: time for the other ranks and torchrun to tell their part
MARK = "LABKIT_RUN"  # every process of a run, grandchildren too, inherits this variable with the run's folder in it


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


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


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

    `patience_s` bounds the time without any sign (a row, an event); `deadline`, in Unix seconds, ends the whole run.
    """

    def __init__(self, run: Run, bar: Any, *, patience_s: float, deadline: float):
        self.run, self.bar, self.patience_s, self.deadline = run, bar, patience_s, deadline
        self.said = Diagnosis(run)
        self.ranks = self.said.ranks
        self.sizes: dict[Path, int] = {}
        self.gone: list[int] = []

    def follow(self, torchrun: subprocess.Popen) -> int:
        """Wait for the end; give the first point that is still to be measured (one past the last when all are).

        Raises WorkerRaised, WorkerDied, WorkerHung or LauncherLost.
        """
        last_sign = time.monotonic()
        while torchrun.poll() is None and not self._bad_news():
            if self._has_news():
                last_sign = time.monotonic()
                self._show_progress()
            patience_s = self.patience_s if self.ready() else max(self.patience_s, START_SECONDS)
            if time.monotonic() - last_sign > patience_s:
                raise self._hung(f"no rank made progress for {patience_s:.0f} s")
            if time.time() > self.deadline:
                raise self._hung("the run outlasted its time limit")
            time.sleep(POLL_SECONDS)
        return self._outcome(torchrun)

    def ready(self) -> float | None:
        """The time (Unix seconds) at which the last rank was ready to measure; None while one is not."""
        times = [event["time"] for rank in self.ranks for event in self.said.events(rank, "ready")]
        return max(times) if len(times) == len(self.ranks) else None

    def _has_news(self) -> bool:
        before = self.sizes
        files = [file for rank in self.ranks for file in (self.run.events_file(rank), self.run.rows_file(rank))]
        self.sizes = {file: size(file) for file in files}
        return self.sizes != before

    def _show_progress(self) -> None:
        done = min(max((e["point"] + 1 for e in self.said.events(rank, "done")), default=0) for rank in self.ranks)
        doing = "measuring" if self.ready() else "starting"
        self.bar.set_description_str(f"{self.run.plan.lab}: {doing}", refresh=False)
        self.bar.update(max(done, self.bar.n) - self.bar.n)

    def _bad_news(self) -> bool:
        """Whether a rank raised, or ended without a word.

        Torchrun takes an exit with status 0 for success, and the other ranks may wait for that one for ever.
        """
        for rank in self.ranks:
            pid = self.said.pid(rank)
            if pid and rank not in self.gone and not _alive(pid) and not self.said.spoke(rank):
                self.gone.append(rank)
        return bool(self.gone) or any(self.said.events(rank, "raised") for rank in self.ranks)

    def _outcome(self, torchrun: subprocess.Popen) -> int:
        """Judge an ended launch: wait for the other ranks' own words and torchrun's, then name the first cause."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while torchrun.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._bad_news()
        self._show_progress()
        if all(self.said.events(rank, "finished") for rank in self.ranks):
            return len(self.said.points)
        restarts = [event["point"] for rank in self.ranks for event in self.said.events(rank, "restart")]
        if restarts:
            return max(restarts) + 1
        raise self.said.first_cause(torchrun, self.gone)

    def _hung(self, why: str) -> RunError:
        """Have every rank dump its Python stack, then say where each one stands."""
        pids = {self.said.pid(rank) for rank in self.ranks}
        for process in members(self.run):
            if process.pid in pids:
                _signal(process, signal.SIGUSR1)
        time.sleep(0.3)  # faulthandler writes at once; the disk may take a moment
        return self.said.hung(why)
