"""The kernel's end of the stations: one srun for all nodes of a launch, kept for the next one."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from labkit.cluster.allocation import Allocation
from labkit.cluster.shared_folder import STATION_ERROR, SharedFolder
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings
from labkit.engine.messages import LaunchOutcome, Rendezvous, Request, StationOutcome, StopLaunch
from labkit.engine.processes import MARK_VARIABLE
from labkit.engine.run import Run
from labkit.engine.session import LEAVE_SECONDS, ProcessSession, import_path, kernel_environment
from labkit.node import Node
from labkit.repository import source_digest

START_SECONDS = 180.0  # for the stations of all nodes to say hello: Python may come from a slow disk
POLL_SECONDS = 0.05
STATE_SECONDS = 6.0  # for Slurm to know why the stations have ended
LOST_TASK = re.compile(r"^srun: error: (?P<host>\S+): tasks? (?P<task>\d+): (?P<how>.*)$", re.M)
# What differs from node to node: each station knows its own.
NODE_VARIABLES = (
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "CUDA_VISIBLE_DEVICES",
    "LABKIT_LAUNCHED",
    "TRITON_INTERPRET",
)
SAME_VERSIONS = ("torch", "nccl", "python")  # versions that all nodes share: their workers talk to each other


class NodesSession(ProcessSession):
    """Stations on several nodes, which start workers there; it serves launches as the session of one node does.

    Attributes: `nodes` (inventories), `networks` (interface, its rate, and cards of each), `hosts` (names).
    """

    def __init__(
        self, modules: tuple[str, ...], allocation: Allocation, count: int, settings: Settings, restarts: int = 0
    ):
        super().__init__(modules)
        self.allocation, self.count, self.settings, self.token = allocation, count, settings, ""
        self.restarts = restarts  # of the job, when it began to run
        self.source_digest = source_digest()
        self.base = kernel_environment()
        self.nodes: tuple[Node, ...] = ()
        self.hosts, self.networks = (), ()
        self.folder_stuck = False  # nothing that is told through the shared folder arrives
        self.ended_by: dict[int, str] = {}  # Slurm's signal, by node
        self._outcomes_by_launch: dict[tuple[str, int], dict[int, StationOutcome]] = {}
        self._stopped: set[tuple[str, int]] = set()
        self._hello_of: dict[int, dict[str, Any]] = {}
        self._shared = SharedFolder(count, settings.setup)
        python = settings.python or sys.executable
        station = [python, "-P", "-m", "labkit.cluster.station", str(self._shared.folder), settings.interface]
        preload = json.dumps({"modules": modules, "path": import_path()})
        # Whether Triton interprets its kernels depends on the node's own GPUs, unless the user has said it.
        exported = {
            name: value for name, value in self.base.items() if name != "TRITON_INTERPRET" or name in os.environ
        }
        kept = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
        try:
            command = [*allocation.srun(count), "bash", str(self._shared.start), *station]
            self._start(command, exported | kept | {"LABKIT_PRELOAD": preload})
        except OSError as error:
            raise ClusterError(f"srun cannot be started: {error}") from None

    def fits(self, module: str, count: int, settings: Settings) -> bool:
        """Whether the stations live, are as many, and know the module and the code as it is on disk."""
        same = (count, settings, source_digest()) == (self.count, self.settings, self.source_digest)
        return same and self.serves(module)

    def wait_for_stations(self) -> None:
        """Wait for the stations of all nodes. Raises ClusterError where one does not come, or they differ too much."""
        begun = time.monotonic()
        while len(self._hello_of) < self.count:
            alive = self.alive()
            self._read()
            missing = sorted({*range(self.count)} - {*self._hello_of})
            if missing and not alive:
                raise ClusterError(f"no station started on node(s) {_comma_separated(missing)}: {self.how_it_ended()}")
            if time.monotonic() > begun + START_SECONDS:
                why = self.last_error() or "srun says nothing"
                raise ClusterError(
                    f"no station on node(s) {_comma_separated(missing)} within {START_SECONDS:.0f} s: {why}"
                )
            time.sleep(POLL_SECONDS)
        hellos = [self._hello_of[index] for index in range(self.count)]
        self.hosts = tuple(hello["host"] for hello in hellos)
        for index, hello in enumerate(hellos):
            if "error" in hello:
                raise ClusterError(f"node {index} ({hello['host']}): {hello['error']}")
        self.nodes = tuple(Node.from_json(json.dumps(hello["node"])) for hello in hellos)
        self.networks = tuple(hello["network"] for hello in hellos)
        self._require_alike(hellos)
        self.meeting_place = hellos[0]["meeting_place"]

    def _require_alike(self, hellos: list[dict[str, Any]]) -> None:
        for what in SAME_VERSIONS:
            versions = [node.versions.get(what) for node in self.nodes]
            if len(set(versions)) > 1:
                each = ", ".join(f"{version} on {host}" for version, host in zip(versions, self.hosts, strict=True))
                raise ClusterError(f"all nodes need the same version of {what}: {each}. Set `setup` or `python`")
        if others := [
            host for host, hello in zip(self.hosts, hellos, strict=True) if hello["source"] != self.source_digest
        ]:
            where = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'} another one than this kernel"
            raise ClusterError(f"all nodes need the same version of labkit: {where}. Let all share one checkout")

    def send_request(self, request: Request) -> None:
        """Send all stations a request; each adds its own part of the environment where it starts a launch."""
        if request["kind"] == "start":
            self.token = secrets.token_hex(16)
            wanted, key = request["environment"], (request["environment"][MARK_VARIABLE], request["launch"])
            self._outcomes_by_launch.pop(key, None)
            self._stopped.discard(key)
            changed = {name for name, value in wanted.items() if self.base.get(name) != value} - {*NODE_VARIABLES}
            request["environment"] = {name: wanted[name] for name in changed}
            address, port = self.meeting_place
            request["rendezvous"] = Rendezvous(address=address, port=port, nodes=self.count, token=self.token)
            request["workers"] //= self.count
        elif request["kind"] == "stop":
            self._stopped.add((Run(request["folder"]).mark, request["launch"]))
        request["number"] = secrets.token_hex(8)
        super().send_request(request)
        if request["kind"] not in ("start", "leave"):  # what matters where srun does not reach a station
            self._shared.append_request(request)

    def outcome(self, run: Run, launch: int) -> LaunchOutcome | None:
        """How the launch ended, once all nodes have told; where one tells of a failure, the others are ended."""
        self._read()
        key = (run.mark, launch)
        outcomes = self._outcomes_by_launch.get(key, {})
        if any(outcome["first"] or outcome["error"] for outcome in outcomes.values()) and key not in self._stopped:
            self.send_request(StopLaunch(kind="stop", folder=str(run.folder), launch=launch))
        if len(outcomes) < self.count:
            return None
        order = sorted(outcomes, key=lambda index: outcomes[index]["unix"])
        failed = [outcomes[index] for index in order if outcomes[index]["first"] and not outcomes[index].get("stopped")]
        errors = [outcomes[index]["error"] for index in order if outcomes[index]["error"]]
        exits = failed[0].get("exits", {}) if failed else {}
        first = failed[0]["first"] if failed else []
        return LaunchOutcome(first=first, exits=exits, statuses={}, error="" if first else next(iter(errors), ""))

    def processes_left(self, run: Run) -> int:
        """Return how many processes of the run the stations saw left at the ends of its launches."""
        return sum(
            outcome["left"]
            for (mark, _), outcomes in self._outcomes_by_launch.items()
            if mark == run.mark
            for outcome in outcomes.values()
        )

    def _read(self) -> None:
        for index, line in self._shared.new_messages():
            if "hello" in line:
                self._hello_of[index] = line
            elif "ending" in line:
                self.ended_by[index] = line["ending"]
            elif "launch" in line:
                outcomes = self._outcomes_by_launch.setdefault((line["run"], line["launch"]), {})
                outcomes[index] = cast(StationOutcome, line)

    def why_lost(self) -> str:
        """Return how Slurm ended the job, once it says so; "" where the job still runs."""
        deadline = time.monotonic() + STATE_SECONDS
        with suppress(ClusterError):
            while True:
                state = self.allocation.job()
                late = time.monotonic() > deadline
                if state.restarts > self.restarts:  # it may run again, without its stations
                    state = replace(state, state="REQUEUED")
                if state.preempted or not (state.is_running or state.is_completing) or (late and state.is_completing):
                    return state.how_it_ended()
                if late or (state.is_running and (not self.ended_by or self.lost_node() is not None)):
                    break
                time.sleep(POLL_SECONDS)
        if self.ended_by and self.lost_node() is None:
            return f"Slurm sent SIGTERM to the processes of its job {self.allocation.number}"
        return ""

    def lost_node(self) -> int | None:
        """Return on which node a station has ended before the others, as srun tells it; None where it does not."""
        lost_task = LOST_TASK.search(self.log_tail())
        return int(lost_task["task"]) if lost_task else None

    def how_it_ended(self) -> str:
        if why := self.why_lost():
            return why
        lines = self.log_tail().splitlines()
        if own_error := next((line for line in lines if line.startswith(STATION_ERROR)), ""):
            # The others lose their folder by its end, and fail in their own ways.
            return own_error.removeprefix(STATION_ERROR)
        errors = [line.partition("error: ")[2] or line for line in lines if "error" in line]
        if refusal := next((line for line in errors if "failed on node" in line), ""):
            return refusal  # by a slurmd; that the other nodes' stations were ended follows from it
        if lost_task := LOST_TASK.search(self.log_tail()):
            return f"node {lost_task['task']} ({lost_task['host']}) has lost its station: {lost_task['how']}"
        return "; ".join(dict.fromkeys(errors[:3])) or f"srun ended with status {self.process.poll()}"

    def last_error(self) -> str:
        return next((line for line in reversed(self.log_tail().splitlines()) if "error" in line), "")

    def _kill(self) -> None:
        """Have srun end the step; killed outright, it would leave the stations to themselves."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LEAVE_SECONDS)
            return
        super()._kill()

    def _clear(self) -> None:
        self._shared.clear()


def _comma_separated(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
