"""One launch, in a process of its own that has torch loaded: torchrun's own elastic agent forks the workers."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.numa.binding import AffinityMode, NumaOptions

from labkit.engine import forkserver, rendezvous
from labkit.engine.enter import enter
from labkit.engine.log_text import one_line
from labkit.engine.messages import LaunchOutcome, StartWorkers
from labkit.engine.processes import end_with, set_name

MONITOR_SECONDS = 0.05
MOST_ERROR = 1_000  # characters
FORK: Any = multiprocessing.get_context("fork")
WORKERS: list[Any] = []  # processes, as they are started


class _Worker(FORK.Process):
    """A process of torch's agent, which tells how the first one that failed ended; of the others it is kept here."""

    def start(self) -> None:
        super().start()
        WORKERS.append(self)


def run_launch(run_id: str, log_folder: Path, store: Path, request: StartWorkers, sender: Connection) -> None:
    """Start the workers, wait for their end, and send the outcome; then end, without what else Python does at the end.

    The ranks of one node meet at the file `store`, in a folder of this user alone. With a `rendezvous` in the request,
    they are those of several nodes, and meet at a store of the first node.
    """
    end_with(os.getppid())
    set_name("launch")
    tempfile.tempdir = str(store.parent)  # torch unpickles files of known names from there
    forkserver.use_own_resource_tracker()
    FORK.Process = _Worker
    try:
        outcome = _start_workers(run_id, log_folder, request, store)
    except BaseException as error:
        outcome = LaunchOutcome(first=[], error=one_line(f"{type(error).__name__}: {error}", MOST_ERROR))
    statuses = {worker.pid: worker.exitcode for worker in WORKERS}
    outcome["statuses"] = {pid: status for pid, status in statuses.items() if status is not None}
    sender.send_bytes(json.dumps(outcome).encode())
    os._exit(0)


def launch_config(run_id: str, log_folder: Path, request: StartWorkers) -> LaunchConfig:
    """Return what torch's agent is told. A process that has asked CUDA for its GPUs can fork no worker that uses them.

    torch asks where no binding of cores is given, to choose one.
    """
    of_nodes = request.get("rendezvous")
    nodes = of_nodes["nodes"] if of_nodes else 1
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=request["workers"],
        run_id=run_id,
        rdzv_backend="rendezvous" if of_nodes else "loopback",
        rdzv_configs={"rendezvous": of_nodes} if of_nodes else {},
        local_addr=of_nodes.get("own_address") if of_nodes else rendezvous.ADDRESS,
        max_restarts=0,  # a restart is a fresh launch of the points that are left
        monitor_interval=MONITOR_SECONDS,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(log_folder)),
        numa_options=NumaOptions(AffinityMode.NODE),
    )
    config.numa_options = None  # workers may use every core; a lab that binds them says so itself
    return config


def _start_workers(run_id: str, log_folder: Path, request: StartWorkers, store: Path) -> LaunchOutcome:
    of_nodes = request.get("rendezvous")
    try:
        elastic_launch(launch_config(run_id, log_folder, request), enter)(
            {**request, "parent": os.getpid(), "store": of_nodes or str(store)}
        )
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return LaunchOutcome(first=sorted(exits), exits=exits, error="")
    return LaunchOutcome(first=[], error="")


# The errors that it logs are told in the outcome, and logging the first takes a second of further imports.
logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
