"""Two machines without Slurm that share a folder: the lines to paste on each, and a run that is followed from there.

Nothing is started from here, so nothing can be ended from here: torchrun on each machine does both. Its static
rendezvous knows each machine's place, so that it unpickles nothing; its store listens on every interface.
"""

from __future__ import annotations

import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labkit import node
from labkit.cluster.connectivity import choose_interface, ipv4_addresses
from labkit.cluster.watch import RemoteWatch, measured_clocks
from labkit.engine.errors import ClusterError
from labkit.engine.interrupts import Interrupts
from labkit.engine.launch_settings import Limits, Settings
from labkit.engine.launches import Launches, ResourceUsage, omp_num_threads
from labkit.engine.plan import Plan
from labkit.engine.processes import MARK_VARIABLE
from labkit.engine.progress import ProgressBars
from labkit.engine.run import Run
from labkit.engine.session import Session
from labkit.repository import REPOSITORY


def launch_by_hand(plan: Plan, nodes: int, limits: Limits, *, progress: bool) -> Run:
    """Print one line for each machine, the first of which is this one, and follow the run until its end.

    Raises what `launch` raises. Where a worker is killed, the error is that of a rank that waited for it: torchrun's
    own words, in its terminal, name the one that was killed.
    """
    settings, here = Settings.read(), node.here()
    plan = plan.with_gpus(plan.gpus * nodes)
    run = Run.create(plan, *(here,) * nodes)
    bars = ProgressBars(plan, progress)
    with Interrupts() as interrupts:
        try:
            HandLaunches(run, settings, bars, limits).run_all(interrupts)
        finally:
            with interrupts.later():
                bars.close()
    return run


def lines_to_paste(run: Run, launch: int, first_point: int, settings: Settings) -> list[str]:
    """Return the command of each machine. Raises ClusterError where the interface has no address."""
    try:
        interface, address = choose_interface(settings.interface or _first_interface())
    except ValueError as error:
        raise ClusterError(f"this machine: {error}") from None
    with socket.socket() as free:
        free.bind((address, 0))
        port = free.getsockname()[1]
    variables = {
        MARK_VARIABLE: run.mark,
        "LABKIT_LAUNCH": str(launch),
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "OMP_NUM_THREADS": str(omp_num_threads(run.plan, run.node, run.node_count)),
    }
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    setup = "".join(f"{line}; " for line in settings.setup)
    token = secrets.token_hex(16)
    lines = []
    for index in range(run.node_count):
        options = f"--nnodes {run.node_count} --node-rank {index} --nproc-per-node {run.plan.gpus // run.node_count}"
        options += f" --log-dir {shlex.quote(str(run.elastic_folder))}"
        rendezvous = f"--master-addr {address} --master-port {port} --rdzv-id {token}"
        torchrun = f"{shlex.quote(settings.python or sys.executable)} -m torch.distributed.run {options} {rendezvous}"
        worker = f"-m labkit.engine.enter {shlex.quote(str(run.folder))} {first_point}"
        lines.append(f"{setup}cd {shlex.quote(str(REPOSITORY))} && {assigned} {torchrun} {worker}")
    return lines


def _first_interface() -> str:
    """Return the first interface that leads anywhere but to this machine."""
    return next((name for name in ipv4_addresses() if name != "lo"), "lo")


class HandWatch(RemoteWatch):
    """Follows a run whose processes it can neither see nor end."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.start_seconds = self.limits.limit_s  # until somebody has pasted the lines

    def _launch_ended(self) -> bool:
        return self._finished()

    @staticmethod
    def end(run: Run, launch: int, session: Session) -> None:
        """The workers end with their torchrun, and each torchrun where one of its workers fails."""

    def _dump_stacks(self) -> None:
        """Only torchrun's machines could ask the ranks where they stand."""


class HandLaunches(Launches):
    """The launches of one run, each started by somebody who pastes its lines."""

    follower = HandWatch

    def __init__(self, run: Run, settings: Settings, bars: ProgressBars, limits: Limits):
        super().__init__(run, HandUsage(run), bars, limits)
        self.settings = settings

    @contextmanager
    def borrow_session(self) -> Iterator[Session]:
        yield Session()

    def start_workers(self, session: Session, first_point: int) -> None:
        """Print the lines, and wait for nobody."""
        print("Paste each line into a terminal of its machine; all machines see the folder of the run:")
        for index, line in enumerate(lines_to_paste(self.run, self.count, first_point, self.settings)):
            print(f"\n# machine {index}{' (this one)' if not index else ''}\n{line}")


class HandUsage(ResourceUsage):
    """What is known of a run whose processes are on other machines."""

    def more_fields(self) -> dict[str, Any]:
        """Return how far the clocks of the machines are apart."""
        return {"clocks": measured_clocks(self.run)}
