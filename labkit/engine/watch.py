"""Follow a run from the host: its progress, its stalls, and the end of its processes."""

from __future__ import annotations

import signal
import time
from typing import Any

import psutil

from labkit.engine.diagnosis import Diagnosis
from labkit.engine.errors import GroundLost, RunError
from labkit.engine.interrupts import Interrupts
from labkit.engine.json_lines import size_bytes
from labkit.engine.launch_settings import Limits
from labkit.engine.messages import LaunchOutcome, StopLaunch
from labkit.engine.processes import is_alive, is_stopped, kill, members, send_signal, terminate
from labkit.engine.progress import LiveLine
from labkit.engine.run import Run
from labkit.engine.session import Session

POLL_SECONDS = 0.05
MOST_POLL_SECONDS = 1.0  # that one poll counts: after a longer one, all have been stopped, as on a suspended laptop
START_SECONDS = 180.0  # the least patience while workers start: importing torch from a busy disk takes its time
GRACE_SECONDS = 3.0  # between asking a process to end and killing it
STACK_SECONDS = 5.0  # for ranks that stand still to write their stacks, where other work takes the cores
END_SECONDS = 6.0  # for the processes of ranks that have all finished to end
SETTLE_SECONDS = 2.0  # after the first bad news: time for the other ranks to tell their part
OTHERS_SECONDS = 5.0  # after a rank ended without a word: for the others, whom the agent asks to end
AGENT_SECONDS = 10.0  # for the agent to tell how a launch has ended, before it is ended itself


class AwakeClock:
    """A clock that stands still while its process is stopped; it counts from its making, when it is looked at."""

    def __init__(self):
        self._seconds, self._last = 0.0, time.monotonic()

    def seconds(self) -> float:
        now = time.monotonic()
        self._seconds, self._last = self._seconds + min(now - self._last, MOST_POLL_SECONDS), now
        return self._seconds


class Watch:
    """Follows one launch of a run; `follow` returns the point to go on from, or raises what went wrong.

    `limits` bounds the time without any sign (a row, an event), and what `awake` may show: the whole run.
    """

    start_seconds = START_SECONDS

    def __init__(
        self,
        run: Run,
        launch: int,
        session: Session,
        bar: Any,
        live: LiveLine,
        *,
        interrupts: Interrupts,
        awake: AwakeClock,
        limits: Limits,
    ):
        self.run, self.launch, self.session, self.bar, self.live = run, launch, session, bar, live
        self.interrupts, self.awake, self.limits = interrupts, awake, limits
        self.diagnosis = Diagnosis(run)
        self.ranks = self.diagnosis.ranks
        self.signs: list[int] = []  # what shows that a rank is at work
        self.ended_silently: list[int] = []

    @staticmethod
    def end(run: Run, launch: int, session: Session) -> None:
        """End every process of a launch: ask, wait GRACE_SECONDS, kill; then see that the agent has noticed.

        A worker that is just being made does not carry the mark yet: it is met before the agent tells the outcome.
        """
        over = session.outcome(run, launch) is not None
        if not over:
            session.send_request(StopLaunch(kind="stop", folder=str(run.folder), launch=launch))
            session.resume()
            terminate(run, GRACE_SECONDS)
        deadline = time.monotonic() + AGENT_SECONDS
        while members(run) or not over:
            kill(run)
            if time.monotonic() > deadline or not session.alive():
                session.leave()
                kill(run)
                break
            time.sleep(POLL_SECONDS)
            over = session.outcome(run, launch) is not None

    def follow(self) -> int:
        """Wait for the end; return the first point that is still to be measured (one past the last when all are).

        Raises WorkerRaised, WorkerDied, WorkerHung, GroundLost or LauncherLost.
        """
        last_sign = self.awake.seconds()
        while not self._launch_ended() and not self._any_rank_failed():
            self.interrupts.raise_if_dropped()
            now = self.awake.seconds()
            if self._has_progressed():
                last_sign = now
                self._show_progress()
            self.live.update()
            still_s = now - last_sign
            self._check_ground(still_s)
            patience_s = max(self.limits.patience_s, 0.0 if self.ready() else self.start_seconds)
            if self._finished():
                if still_s > END_SECONDS:
                    break
            elif still_s > patience_s:
                if not self._has_progressed():  # it may have come since the look above
                    raise self._hung_error(f"no rank made progress for {patience_s:.0f} s")
                last_sign = now
            elif now > self.limits.limit_s:
                raise self._hung_error("the run outlasted its time limit")
            time.sleep(POLL_SECONDS)
        return self._judge_end()

    def _finished(self) -> bool:
        """Whether every rank has finished, and none raised: a process that the lab forked may do that beside it."""
        names = [{name for name in ("finished", "raised") if self.diagnosis.events(rank, name)} for rank in self.ranks]
        return all(event_names == {"finished"} for event_names in names)

    def _launch_ended(self) -> bool:
        return self.session.outcome(self.run, self.launch) is not None or not self.session.alive()

    def ready(self) -> float | None:
        """The time (of the monotonic clock) at which the last rank was ready to measure; None while one is not."""
        times = [event["at"] for rank in self.ranks for event in self.diagnosis.events(rank, "ready")]
        return max(times) if len(times) == len(self.ranks) else None

    def _has_progressed(self) -> bool:
        self.diagnosis.read()
        before = self.signs
        elsewhere = self.run.node_count > 1
        sizes = [size_bytes(self.run.rows_file(rank), elsewhere=elsewhere) for rank in self.ranks]
        self.signs = [self.diagnosis.events_read, *sizes]
        return self.signs != before

    def _check_ground(self, still_s: float) -> None:
        """Raise GroundLost where there is nothing left to wait for."""
        self._check_folder()
        if lost := self.diagnosis.ground_lost(still_s > MOST_POLL_SECONDS, self.session):
            self.session.leave()  # no loopback: the agent itself may wait for it
            raise lost

    def _check_folder(self) -> None:
        """Raise GroundLost where the run's folder, or a file of rows in it, is not what it was."""
        if why := self.run.folder_lost() or self.run.move_replaced_rows():
            raise GroundLost(why, run=self.run, logs=self.diagnosis.logs(None))

    def _show_progress(self) -> None:
        points_done = [[event["point"] + 1 for event in self.diagnosis.events(rank, "done")] for rank in self.ranks]
        done = min(points[-1] if points else 0 for points in points_done)
        doing = "measuring" if self.ready() else "starting"
        self.bar.set_description_str(f"{self.run.plan.lab}: {doing}", refresh=False)
        self.bar.update(max(done, self.bar.n) - self.bar.n)

    def _any_rank_failed(self) -> bool:
        """Whether a rank raised, or ended without a word: the other ranks may wait for that one for ever."""
        for rank in self.ranks:
            pid = self.diagnosis.pid(rank)
            if (
                pid
                and rank not in self.ended_silently
                and not self.diagnosis.has_reported_its_end(rank)
                and not self._may_be_alive(pid)
            ):
                self.diagnosis.read()  # it may have spoken just before its end
                if not self.diagnosis.has_reported_its_end(rank):
                    self.ended_silently.append(rank)
        return bool(self.ended_silently) or any(self.diagnosis.events(rank, "raised") for rank in self.ranks)

    def _judge_end(self) -> int:
        """Judge an ended launch: wait for the other ranks' own words and the agent's, then name the first cause.

        Where no rank raised for a reason of its own, only the agent knows how the first one died. It tells once all
        have ended; a worker that ignores SIGTERM is ended here.
        """
        waited = AwakeClock()
        while not self._launch_ended() and not self._finished() and waited.seconds() < OTHERS_SECONDS:
            self.diagnosis.read()
            if waited.seconds() > SETTLE_SECONDS and self.diagnosis.culprits():
                break
            time.sleep(POLL_SECONDS)
        self.diagnosis.read()
        self._any_rank_failed()
        self._show_progress()
        self._check_ground(still_s=0)
        if self._finished():
            return len(self.diagnosis.points)
        restarts = [event["point"] for rank in self.ranks for event in self.diagnosis.events(rank, "restart")]
        if restarts and not self.diagnosis.culprits():
            return max(restarts) + 1
        ended_here = not self._launch_ended() and not self.diagnosis.culprits()
        if ended_here:
            self.end(self.run, self.launch, self.session)
        outcome = self.session.outcome(self.run, self.launch)
        if outcome and ended_here:  # whom the agent then saw end first may have been ended by that
            outcome["first"] = [rank for rank in outcome["first"] if self._ended_by_itself(rank)]
        raise self._first_cause(outcome)

    def _may_be_alive(self, pid: int) -> bool:
        """Whether the worker of this pid, which has not spoken yet, still may."""
        return is_alive(pid)

    def _ended_by_itself(self, rank: int) -> bool:
        """Whether a rank of a launch that was ended here had ended before."""
        return rank in self.ended_silently

    def _first_cause(self, outcome: LaunchOutcome | None) -> RunError:
        """Return the error of a launch that has ended."""
        return self.diagnosis.first_cause(outcome, self.ended_silently, self.session)

    def _hung_error(self, why: str) -> RunError:
        """Have every rank dump its Python stack, then say where each one stands."""
        running = [rank for rank in self.ranks if not self.diagnosis.has_reported_its_end(rank)]
        self._dump_stacks()
        self.diagnosis.read()
        woken = tuple(rank for rank in running if self.diagnosis.has_reported_its_end(rank))
        return self.diagnosis.hung(why, self.session, woken)

    def _dump_stacks(self) -> None:
        rank_of = {self.diagnosis.pid(rank): rank for rank in self.ranks}
        asked = {rank_of[process.pid]: process for process in members(self.run) if process.pid in rank_of}
        for process in asked.values():
            send_signal(process, signal.SIGUSR1)
        deadline = time.monotonic() + STACK_SECONDS
        while asked and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            asked = {rank: process for rank, process in asked.items() if self._writes_its_stack(rank, process)}

    def _writes_its_stack(self, rank: int, process: psutil.Process) -> bool:
        """Whether the rank's stack is still to come; a stopped process writes none."""
        return is_alive(process) and not is_stopped(process) and not self.diagnosis.stack_is_complete(rank)
