"""Follows a run on several nodes: what a kernel sees of its own node's processes, the stations tell here."""

from __future__ import annotations

import signal
import time

from labkit.cluster.session import NodesSession
from labkit.engine.errors import GroundLost, JobEnded, LauncherLost, RunError, WorkerDied, WorkerRaised
from labkit.engine.json_lines import read_lines
from labkit.engine.messages import DumpStacks, LaunchOutcome, StopLaunch
from labkit.engine.run import Run
from labkit.engine.session import Session
from labkit.engine.watch import POLL_SECONDS, STACK_SECONDS, Watch

END_SECONDS = 12.0  # for the stations to end a launch: each asks, waits, kills, and tells
CHECK_NODE = (
    "A silent node may be down, cut off from the network, or unable to write to the run's folder: look there first"
)
OTHER_FOLDER = "Set LABKIT_RUNS to a folder on another file system"


class RemoteWatch(Watch):
    """Follows one launch of a run whose workers are on other machines: this one cannot see whether a process lives."""

    def _may_be_alive(self, pid: int) -> bool:
        return True  # whoever started it tells of its end

    def _check_ground(self, still_s: float) -> None:
        """Raise GroundLost where the run's folder is gone."""
        self._check_folder()


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
        session.send_request(StopLaunch(kind="stop", folder=str(run.folder), launch=launch))
        deadline = time.monotonic() + END_SECONDS
        while session.outcome(run, launch) is None:
            if time.monotonic() > deadline or not session.alive():
                session.leave()
                return
            time.sleep(POLL_SECONDS)

    def _ended_by_itself(self, rank: int) -> bool:
        return True  # the session counts what was told before the launch was ended

    def _hung_error(self, why: str) -> RunError:
        """Return where each rank stands, and what to check: the run's folder, a silent node, or the network."""
        if no_write := self.run.unwritable():  # no worker can write where it stands
            self.session.folder_stuck = True
            error = self.diagnosis.hung(why, self.session)
            sentence = (
                f"the run's folder {self.run.folder} cannot be written ({no_write}): {error.sentence}. {OTHER_FOLDER}"
            )
            return GroundLost(sentence, run=self.run, point=error.point, detail=error.detail, logs=error.logs)
        error = super()._hung_error(why)
        if silent := self._silent_nodes():
            names = ", ".join(f"node {node} ({self.session.hosts[node]})" for node in silent)
            verb = "is" if len(silent) == 1 else "are"
            return error.reworded(f"{names} {verb} silent: {error.sentence}. {CHECK_NODE}")
        if self.diagnosis.every_rank_waits():
            same_call = "Every rank waits for another one. Where all wait in the same call"
            return error.reworded(f"{error.sentence}. {same_call}, {self._check_network()}")
        return error

    def _silent_nodes(self) -> list[int]:
        """Return the nodes on which workers were asked where they stand, and none has written it."""
        asked = [
            rank for rank in self.ranks if self.diagnosis.pid(rank) and not self.diagnosis.has_reported_its_end(rank)
        ]
        answered = {self.run.node_index(rank) for rank in asked if self.diagnosis.stack_is_complete(rank)}
        return sorted({self.run.node_index(rank) for rank in asked} - answered)

    def _check_network(self) -> str:
        over = " and ".join(dict.fromkeys(network["interface"] for network in self.session.networks))
        return f"check the network between the nodes ({over}), or set `interface` in cluster.toml to another one"

    def _first_cause(self, outcome: LaunchOutcome | None) -> RunError:
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
        if only_victims:
            return error.reworded(f"{error.sentence}. No rank failed by itself: {self._check_network()}")
        return error

    def _dump_stacks(self) -> None:
        """Have the stations ask every rank where it stands, and wait for the answers."""
        pids = {rank: pid for rank in self.ranks if (pid := self.diagnosis.pid(rank)) is not None}
        self.session.send_request(DumpStacks(kind="dump stacks", folder=str(self.run.folder), pids=[*pids.values()]))
        deadline = time.monotonic() + STACK_SECONDS
        while not all(map(self.diagnosis.stack_is_complete, pids)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def measured_clocks(run: Run) -> list[dict[str, float]]:
    """Return `ahead_us` of each node's monotonic clock to node 0's, and `round_trip_us`: twice the bound of its error.

    Where a node's first rank has measured nothing, its entry is empty.
    """
    clocks = []
    for place in range(run.node_count):
        events = read_lines(run.events_file(place * run.plan.gpus // run.node_count))
        newest = next((event for event in reversed(events) if event.get("event") == "clock"), {})
        clocks.append({name: round(newest[name], 1) for name in ("ahead_us", "round_trip_us") if name in newest})
    return clocks
