"""The process beside a kernel: a forkserver with torch loaded, and torchrun's own elastic agent, one a launch.

Requests come as JSON lines on stdin. When stdin closes or the kernel ends, however it ends, the workers of all
launches end, then the forkserver, then this process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from multiprocessing import forkserver

from labkit.engine import watch
from labkit.engine.run import Run

TICK_SECONDS = 0.05
ACTIVE: dict[str, Run] = {}  # the launches that go on, by folder
CHILDREN: dict[int, multiprocessing.Process] = {}  # every worker seen, by pid: its exit status is told afterwards


def main(kernel_pid: int) -> None:
    """Serve requests until the kernel is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the kernel alone decides when this process ends
    try:
        kernel = os.pidfd_open(kernel_pid)
    except ProcessLookupError:
        os._exit(0)
    multiprocessing.set_forkserver_preload(["labkit.engine.preload"])
    forkserver.ensure_running()  # it imports torch while this process does
    threading.Thread(target=_import_torch, daemon=True).start()
    text = b""
    while True:
        readable, _, _ = select.select([0, kernel], [], [], TICK_SECONDS)
        CHILDREN.update({child.pid: child for child in list(multiprocessing.process._children)})
        if kernel in readable:
            break
        if 0 in readable:
            if not (more := os.read(0, 2**20)):
                break
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
    for run in list(ACTIVE.values()):
        watch.kill(run)
    os._exit(0)


def _import_torch() -> None:
    import torch.distributed.launcher.api  # noqa: F401


def serve(request: dict) -> None:
    """Run one launch to its end and write down how each worker's process ended."""
    run = ACTIVE[request["folder"]] = Run(request["folder"])
    try:
        outcome = _launch(run, request)
    except BaseException as error:
        outcome = {"first": [], "error": f"{type(error).__name__}: {error}"}
    time.sleep(TICK_SECONDS)
    statuses = {pid: child.exitcode for pid, child in CHILDREN.items()}
    outcome["statuses"] = {pid: status for pid, status in statuses.items() if status is not None}
    for pid in outcome["statuses"]:
        CHILDREN.pop(pid, None)
    ACTIVE.pop(request["folder"], None)
    run.write_outcome(request["launch"], outcome)


def _launch(run: Run, request: dict) -> dict:
    """Start the workers through torch.distributed's elastic agent and wait for them; give the ranks it saw fail first."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from labkit.engine.worker import enter

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=request["workers"],
        run_id=f"{run.mark}-{request['launch']}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,  # a restart is a fresh launch of the points that are left
        monitor_interval=TICK_SECONDS,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(run.logs / "elastic")),
    )
    config.numa_options = None  # workers may use every core; a lab that binds them says so itself
    try:
        elastic_launch(config, enter)(request["folder"], request["first_point"], request["environment"])
    except ChildFailedError as error:
        return {"first": sorted(error.failures), "error": ""}
    return {"first": [], "error": ""}


if __name__ == "__main__":
    main(int(sys.argv[1]))
