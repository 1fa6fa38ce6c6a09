"""Follow a run from the host: its progress, its stalls, and the end of every process; the one place that ends any."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from labkit.engine.diagnosis import Diagnosis, size
from labkit.engine.errors import RunError
from labkit.engine.run import Run
from labkit.engine.session import MARK, Session

POLL_SECONDS = 0.05
START_SECONDS = 180.0  # the least patience while workers start: importing torch from a busy disk takes its time
GRACE_SECONDS = 3.0  # between asking a process to end and killing it
END_SECONDS = 10.0  # for the processes of ranks that have all finished to end
SETTLE_SECONDS = 2.0  # after the first bad news: time for the other ranks to tell their part
AGENT_SECONDS = 10.0  # for the agent to tell how a launch has ended, before it is ended itself
KILL_SECONDS = 5.0  # then what even SIGKILL does not end is given up: a process stuck in a driver, or another user's
CARE_SECONDS = 1.0  # of them, for caretakers
CARETAKERS = ("multiprocessing.resource_tracker", "torch_shm_manager")  # free shared memory when its users are gone


def members(run: Run) -> list[psutil.Process]:
    """Give the living processes that belong to the run: those with its mark in their environment, and all below them.

    Who was started with an environment of its own has no mark, but stays below a worker (see preload.adopt).
    """
    marked, below = [], defaultdict(list)
    for process in psutil.process_iter():
        try:
            below[process.ppid()].append(process)
            if process.environ().get(MARK) == run.mark:
                marked.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
    found = {}
    while marked:
        process = marked.pop()
        if process not in found:
            found[process] = _alive(process)
            marked += below[process.pid]
    return [process for process, alive in found.items() if alive]


def kill(run: Run) -> None:
    """Kill every process of the run, until none is left; caretakers may end by themselves once the others have.

    psutil sends no signal to a pid whose start time differs from the one it saw, so a reused pid is safe.
    """
    begun = time.monotonic()
    while (alive := members(run)) and (spent := time.monotonic() - begun) < KILL_SECONDS:
        for process in alive:
            if spent > CARE_SECONDS or not _caretaker(process):
                _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=0.2)


def end(run: Run, launch: int, session: Session) -> None:
    """End every process of a launch: ask, wait GRACE_SECONDS, kill; then see that the agent has noticed.

    A worker that is just being made does not carry the mark yet: it is met before the agent tells the outcome.
    """
    over = run.outcome(launch) is not None
    if not over:
        session.ask(stop=str(run.folder), launch=launch)
        alive = members(run)
        for process in alive:
            if not _caretaker(process):
                _signal(process, signal.SIGTERM)
        psutil.wait_procs(alive, timeout=GRACE_SECONDS)
    deadline = time.monotonic() + AGENT_SECONDS
    while members(run) or not over:
        kill(run)
        if time.monotonic() > deadline or not session.alive():
            session.leave()
            kill(run)
            break
        time.sleep(POLL_SECONDS)
        over = run.outcome(launch) is not None


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:  # it ended by itself
        return


def _caretaker(process: psutil.Process) -> bool:
    try:
        return any(name in argument for argument in process.cmdline() for name in CARETAKERS)
    except psutil.Error:
        return False


def _alive(process: psutil.Process | int) -> bool:
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Watch:
    """Follows one launch of a run; `follow` returns the point to go on from, or raises what went wrong.

    `patience_s` bounds the time without any sign (a row, an event); `deadline`, in Unix seconds, ends the whole run.
    """

    def __init__(self, run: Run, launch: int, session: Session, bar: Any, *, patience_s: float, deadline: float):
        self.run, self.launch, self.session, self.bar = run, launch, session, bar
        self.patience_s, self.deadline = patience_s, deadline
        self.said = Diagnosis(run)
        self.ranks = self.said.ranks
        self.sizes: dict[Path, int] = {}
        self.gone: list[int] = []

    def follow(self) -> int:
        """Wait for the end; give the first point that is still to be measured (one past the last when all are).

        Raises WorkerRaised, WorkerDied, WorkerHung or LauncherLost.
        """
        last_sign = time.monotonic()
        while not self._over() and not self._bad_news():
            if self._has_news():
                last_sign = time.monotonic()
                self._show_progress()
            still_s = time.monotonic() - last_sign
            patience_s = self.patience_s if self.ready() else max(self.patience_s, START_SECONDS)
            if self._finished():
                if still_s > END_SECONDS:
                    break
            elif still_s > patience_s:
                raise self._hung(f"no rank made progress for {patience_s:.0f} s")
            elif time.time() > self.deadline:
                raise self._hung("the run outlasted its time limit")
            time.sleep(POLL_SECONDS)
        return self._outcome()

    def _finished(self) -> bool:
        return all(self.said.events(rank, "finished") for rank in self.ranks)

    def _over(self) -> bool:
        return self.run.outcome_file(self.launch).exists() or not self.session.alive()

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
        """Whether a rank raised, or ended without a word: the other ranks may wait for that one for ever."""
        for rank in self.ranks:
            pid = self.said.pid(rank)
            if pid and rank not in self.gone and not _alive(pid) and not self.said.spoke(rank):
                self.gone.append(rank)
        return bool(self.gone) or any(self.said.events(rank, "raised") for rank in self.ranks)

    def _outcome(self) -> int:
        """Judge an ended launch: wait for the other ranks' own words and the agent's, then name the first cause.

        Where no rank raised for a reason of its own, only the agent knows how the first one died. It tells once all
        have ended; a worker that does not heed it is ended here.
        """
        begun = time.monotonic()
        while not self._over() and (waited := time.monotonic() - begun) < AGENT_SECONDS:
            if waited > SETTLE_SECONDS and self.said.culprits():
                break
            time.sleep(POLL_SECONDS)
        self._bad_news()
        self._show_progress()
        if self._finished():
            return len(self.said.points)
        restarts = [event["point"] for rank in self.ranks for event in self.said.events(rank, "restart")]
        if restarts and not self.said.culprits():
            return max(restarts) + 1
        ended_here = not self._over() and not self.said.culprits()
        if ended_here:
            end(self.run, self.launch, self.session)
        outcome = self.run.outcome(self.launch)
        if outcome and ended_here:  # whom the agent then saw end first may have been ended by that
            outcome["first"] = [rank for rank in outcome["first"] if rank in self.gone]
        raise self.said.first_cause(outcome, self.gone, self.session)

    def _hung(self, why: str) -> RunError:
        """Have every rank dump its Python stack, then say where each one stands."""
        pids = {self.said.pid(rank) for rank in self.ranks}
        for process in members(self.run):
            if process.pid in pids:
                _signal(process, signal.SIGUSR1)
        time.sleep(0.3)  # faulthandler writes at once; the disk may take a moment
        return self.said.hung(why)
