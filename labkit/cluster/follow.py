"""Follows a run on several nodes: what a kernel sees of its own node's processes, the stations tell here."""

from __future__ import annotations

import signal
import time
from typing import Any

from labkit.cluster.ground import Lost, lost
from labkit.cluster.session import NodesSession
from labkit.engine.errors import GroundLost, JobEnded, LauncherLost, RunError, WorkerDied, WorkerRaised
from labkit.engine.run import Run
from labkit.engine.session import Session
from labkit.engine.watch import POLL_SECONDS, STACK_SECONDS, Watch

END_SECONDS = 12.0  # for the stations to end a launch: each asks, waits, kills, and tells


class RemoteWatch(Watch):
    """Follows one launch of a run whose workers are on other machines: this one cannot see whether a process lives."""

    def _lives(self, pid: int) -> bool:
        return True  # whoever started it tells of its end

    def _check_ground(self, still_s: float) -> None:
        """Raise GroundLost where the run's folder is gone."""
        if why := self.run.folder_lost():
            raise GroundLost(why, run=self.run, logs=self.diagnosis.logs(None))


class NodesWatch(RemoteWatch):
    """Follows one launch of a run on several nodes."""

    session: NodesSession

    @staticmethod
    def end(run: Run, launch: int, session: Session) -> None:
        """Have the stations end every process of a launch; where one does not answer, all stations are ended."""
        if session.outcome(run, launch) is not None:
            return
        if isinstance(session, NodesSession) and session.folder_stuck:  # nothing can be told through it
            session.leave()
            return
        session.send_request(stop=str(run.folder), launch=launch)
        deadline = time.monotonic() + END_SECONDS
        while session.outcome(run, launch) is None:
            if time.monotonic() > deadline or not session.alive():
                session.leave()
                return
            time.sleep(POLL_SECONDS)

    def _ended_by_itself(self, rank: int) -> bool:
        return True  # the session counts what was told before the launch was ended

    def _hung(self, why: str) -> RunError:
        """Return what the run stands on and has lost, as the stations see it, or else where each rank stands."""
        ground = lost(self.run, self.session)
        if ground is None:
            return super()._hung(why)
        if not ground.folder:  # else no worker can write where it stands
            return self._of_ground(ground, super()._hung(why))
        self.session.folder_stuck = True
        return self._of_ground(ground, self.diagnosis.hung(why, self.session))

    def _of_ground(self, ground: Lost, error: RunError) -> GroundLost:
        """Return the error of a run that has lost its ground, with what another error says of the ranks."""
        sentence = f"{ground.what}: {error.sentence}. {ground.advice}"
        told = GroundLost(sentence, run=self.run, detail=error.detail, logs=error.logs)
        told.node, told.point = ground.node, error.point
        return told

    def _first_cause(self, outcome: dict[str, Any] | None) -> RunError:
        """Return the error of an ended launch; where Slurm has ended the job, that is the cause."""
        exits = (outcome or {}).get("exits", {}).values()
        suspicious = not self.session.alive() or self.session.ended_by or -signal.SIGTERM in exits
        if suspicious and not self.diagnosis.culprits() and (why := self.session.why_lost()):
            return JobEnded(f"{why}, while the run went on", run=self.run, logs=self.diagnosis.logs(None))
        error = super()._first_cause(outcome)
        if isinstance(error, LauncherLost):
            error.node = self.session.lost_node()
        if isinstance(error, WorkerDied | LauncherLost) and self.run.unwritable():  # why, the ranks could not write
            words = {"point": error.point, "detail": error.detail, "logs": error.logs}
            return GroundLost(error.sentence, run=self.run, rank=error.rank, **words)
        only_victims = isinstance(error, WorkerRaised) and not self.diagnosis.culprits()  # of another one's end
        if only_victims and (ground := lost(self.run, self.session)):
            return self._of_ground(ground, error)
        return error

    def _dump_stacks(self) -> None:
        """Have the stations ask every rank where it stands, and wait for the answers."""
        pids = {rank: pid for rank in self.ranks if (pid := self.diagnosis.pid(rank)) is not None}
        self.session.send_request(stacks=str(self.run.folder), pids=[*pids.values()])
        deadline = time.monotonic() + STACK_SECONDS
        while not all(map(self.diagnosis.stack_is_complete, pids)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
