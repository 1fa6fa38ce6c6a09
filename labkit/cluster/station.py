"""The agent on one node of a run over several: Slurm starts it, and it starts that node's workers.

It is the agent that runs beside a kernel (labkit.engine.agent). Requests come through srun, which hands its stdin to
the stations of all nodes. What a station tells goes to a file of its own in a folder that the kernel reads, too. When
srun ends, its stdin closes, or Slurm ends the job, the workers end, then the station.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from labkit import node
from labkit.cluster.connectivity import choose_interface, listening_socket
from labkit.cluster.shared_folder import STATION_ERROR, is_gone, node_file, requests_file
from labkit.engine import agent, processes
from labkit.engine.files import private_folder
from labkit.engine.json_lines import JsonLines
from labkit.engine.messages import Request, StartWorkers
from labkit.engine.processes import kill, members, terminate
from labkit.engine.run import Run
from labkit.engine.session import kernel_environment
from labkit.node.network import cards, rate_of
from labkit.repository import source_digest

GRACE_SECONDS = 3.0  # between asking a run's processes to end and killing them
REQUEST_SECONDS = 1.0  # between two looks at the file of requests
AGENT_SECONDS = 1.0  # for the elastic agent to notice that; it may wait for another node, which does not come
# Slurm chooses them on each node.
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
Launch = tuple[str, int]  # a run's mark, and which of its launches


class Station(agent.RequestHandler):
    """What the kernel is told of this node, and what is particular to a node among several."""

    def __init__(self, file: Path, index: int, interface: tuple[str, str], listener: socket.socket | None):
        super().__init__(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        self.folder, self.index, self.listener = file.parent, index, listener
        self.interface, self.address = interface
        self.clean, self.outcomes_told = kernel_environment(), set[Launch]()
        self.runs: dict[str, Run] = {}
        self._heard, self._hearing = set[Any](), threading.Lock()
        self._telling = threading.RLock()

    def tell(self, outcome: Mapping[str, Any]) -> None:
        """Append one line to this node's file, on disk when this returns; of each launch only the first outcome."""
        with self._telling:
            if "launch" in outcome:
                launch = (outcome["run"], outcome["launch"])
                if launch in self.outcomes_told:
                    return
                self.outcomes_told.add(launch)
                outcome = {**outcome, "left": len(members(self.runs[outcome["run"]]))}
            try:
                super().tell({**outcome, "unix": time.time()})
                os.fsync(self._pipe.fileno())
            except OSError as error:  # the kernel learns it from srun, which ends with this process
                why = f"node {self.index} ({host_name()}) cannot write {self.folder}: {error.strerror}"
                print(f"{STATION_ERROR}{why}", file=sys.stderr, flush=True)
                self.ending = True

    def start(self, request: StartWorkers) -> None:
        """Start this node's share of the workers, in the environment of this node."""
        assert "rendezvous" in request, "a kernel sends it to stations"
        changes, rendezvous = request["environment"], request["rendezvous"]
        own_gpus = {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ}
        listener = self.listener.fileno() if self.listener else None
        network = {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": f"={self.interface}"}
        request["environment"] = self.clean | changes | own_gpus | network | {"LABKIT_LAUNCHED": repr(time.monotonic())}
        request["node"] = self.index
        request["ranks"] = (self.index * request["workers"], (self.index + 1) * request["workers"])
        request["sampled"] = self._gpus_to_sample(request)
        request["rendezvous"] = {
            **rendezvous,
            "node": self.index,
            "own_address": self.address,
            "listener": listener,
        }
        run = Run(request["folder"])
        self.runs[run.mark] = run
        super().start(request)

    def is_new(self, request: Request) -> bool:
        with self._hearing:
            was_heard = request.get("number") in self._heard
            self._heard.add(request.get("number"))
        return not was_heard

    def read_requests(self) -> None:
        """Follow what the kernel writes beside what srun brings; where the file is removed, this station ends."""
        requests = JsonLines(file := requests_file(self.folder), elsewhere=True)
        while not is_gone(file):
            for request in requests.new_objects():
                agent.handle(cast(Request, request), self)
            time.sleep(REQUEST_SECONDS)
        self.ending = True

    def close(self) -> None:
        """Remove the folder of the stations, which a kernel that was killed has left."""
        if not self.index:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _gpus_to_sample(self, request: StartWorkers) -> list[tuple[int, str | None]] | None:
        """Return which GPUs of this node the launch uses; none on a CPU, None where no conditions are measured."""
        if not request["sampled"]:
            return request["sampled"]
        return [(gpu.index, gpu.uuid) for gpu in node.here().gpus[: request["workers"]]]

    def stop(self, folder: str, launch: int) -> None:
        super().stop(folder, launch)
        threading.Thread(target=self._end, args=(Run(folder), launch), daemon=True).start()

    def _end(self, run: Run, launch: int) -> None:
        """End this node's processes of a launch, and say so even where the elastic agent still waits for others."""
        self.runs.setdefault(run.mark, run)
        terminate(run, GRACE_SECONDS)
        deadline = time.monotonic() + AGENT_SECONDS
        while (run.mark, launch) not in self.outcomes_told:
            kill(run)
            if time.monotonic() > deadline:
                self.tell({"run": run.mark, "launch": launch, "first": [], "error": "it was stopped", "statuses": {}})
            time.sleep(agent.TICK_SECONDS)

    def set_signal_handlers(self) -> None:
        """Slurm sends SIGTERM some time before it kills: on scancel, at the time limit, and for another job."""
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end_soon)

    def _end_soon(self, number: int, frame: Any) -> None:
        threading.Thread(target=self._tell_of_end, daemon=True).start()  # the lock may be held where the signal came

    def _tell_of_end(self) -> None:
        self.tell({"ending": "Slurm has sent SIGTERM"})
        self.ending = True

    def hello(self, **more: Any) -> None:
        """Tell what the kernel must know of this node before it can launch there."""
        self.tell({"hello": self.index, "host": host_name(), "source": source_digest(), **more})


def host_name() -> str:
    """Return what Slurm calls this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def main(folder: str, name: str) -> None:
    """Serve the kernel behind srun; `folder` holds one file for each node, `name` is an interface's or empty."""
    index = int(os.environ["SLURM_PROCID"])
    processes.SlurmTask.number = str(index)
    os.dup2(2, 1)  # what libraries print goes where errors go
    file = node_file(Path(folder), index)
    try:
        interface = choose_interface(name)
    except ValueError as error:
        Station(file, index, ("", ""), None).hello(error=str(error))
        return
    listener = None if index else listening_socket(interface[1])  # of the store at which all meet
    station = Station(file, index, interface, listener)
    threading.Thread(target=station.read_requests, daemon=True).start()
    inventory = json.loads(node.here().to_json())
    network = {"interface": interface[0], "gbit_per_s": rate_of(interface[0]), "cards": [*map(asdict, cards())]}
    meeting_place = listener and listener.getsockname()
    station.hello(meeting_place=meeting_place, node=inventory, network=network)
    private, _ = private_folder("station")  # locked as long as this process lives
    agent.main(os.getppid(), private, station)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
