"""Follows a run on several nodes: what a kernel sees of its own node's processes, the stations tell here.

From what they see follows, too, what a run that stands still has lost: the network between the nodes, or its folder.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from labkit.cluster.session import NodesSession
from labkit.engine.errors import GroundLost, JobEnded, LauncherLost, RunError, WorkerDied, WorkerRaised
from labkit.engine.json_lines import read_lines
from labkit.engine.messages import DumpStacks, LaunchOutcome, StopLaunch
from labkit.engine.run import Run
from labkit.engine.session import Session
from labkit.engine.watch import POLL_SECONDS, STACK_SECONDS, Watch

END_SECONDS = 12.0  # for the stations to end a launch: each asks, waits, kills, and tells
MEND_NETWORK = "Mend the network between the nodes, or set `interface` in cluster.toml to another one"
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
        """Return what the run stands on and has lost, as the stations see it, or else where each rank stands."""
        loss = loss_of(self.run, self.session)
        if loss is None:
            return super()._hung_error(why)
        if not loss.folder:  # else no worker can write where it stands
            return self._ground_lost(loss, super()._hung_error(why))
        self.session.folder_stuck = True
        return self._ground_lost(loss, self.diagnosis.hung(why, self.session))

    def _ground_lost(self, loss: Loss, error: RunError) -> GroundLost:
        """Return the error of a run that has lost its ground, with what another error says of the ranks."""
        sentence = f"{loss.what}: {error.sentence}. {loss.advice}"
        lost_error = GroundLost(sentence, run=self.run, detail=error.detail, logs=error.logs)
        lost_error.node, lost_error.point = loss.node, error.point
        return lost_error

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
        if only_victims and (loss := loss_of(self.run, self.session)):
            return self._ground_lost(loss, error)
        return error

    def _dump_stacks(self) -> None:
        """Have the stations ask every rank where it stands, and wait for the answers."""
        pids = {rank: pid for rank in self.ranks if (pid := self.diagnosis.pid(rank)) is not None}
        self.session.send_request(DumpStacks(kind="dump stacks", folder=str(self.run.folder), pids=[*pids.values()]))
        deadline = time.monotonic() + STACK_SECONDS
        while not all(map(self.diagnosis.stack_is_complete, pids)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


class Loss(NamedTuple):
    """What the run has lost, in a clause, what to do, and at which node it is lost (None: at all of them)."""

    what: str
    advice: str
    node: int | None
    folder: bool = False  # it takes no writes: nothing can be told through it


def loss_of(run: Run, session: NodesSession) -> Loss | None:
    """Have every station look, and this kernel, too; return what is lost, None where nothing is."""
    with ThreadPoolExecutor(1) as threads:
        kernel_probe = threads.submit(run.unwritable)
        probes = session.look_around(run)
        unwritable_here = kernel_probe.result()
    unwritable = {index: probe["folder"] for index, probe in probes.items() if probe["folder"]}
    if unwritable_here or unwritable:
        node = None if unwritable_here or len(unwritable) == session.count else min(unwritable)
        where = "" if node is None else f" from {_node_name(node, session)}"
        why = unwritable_here or unwritable[min(unwritable)]
        return Loss(f"the run's folder {run.folder} cannot be written{where} ({why})", OTHER_FOLDER, node, folder=True)
    broken = [(index, int(other)) for index, probe in probes.items() for other in probe["unreachable"]]
    if not broken:
        return None
    # The node that most of the broken ways begin or end at; of two, the one whose interface is down, else the later.
    down = {index for index, probe in probes.items() if probe["interface"]}
    node = max(range(session.count), key=lambda index: (sum(index in way for way in broken), index in down, index))
    begin, end = next((way for way in broken if way[0] == node), next(way for way in broken if node in way))
    why = probes[begin]["unreachable"][str(end)]
    if node in down:
        why += f"; {session.networks[node]['interface']} on {session.hosts[node]} {probes[node]['interface']}"
    way = f"those of {_node_name(end, session)} over {session.networks[begin]['interface']} ({why})"
    silent = ", ".join(_node_name(index, session) for index in range(session.count) if index not in probes)
    state = f"{silent} cannot be asked" if silent else "both nodes live" if session.count == 2 else "all nodes live"
    return Loss(f"the workers of {_node_name(begin, session)} cannot reach {way}, and {state}", MEND_NETWORK, node)


def _node_name(node: int, session: NodesSession) -> str:
    return f"node {node} ({session.hosts[node]})"


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
