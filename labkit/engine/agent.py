"""The process beside a kernel: a forkserver with torch loaded, and torchrun's own elastic agent, one a launch.

Requests come as JSON lines on stdin. When stdin closes or the kernel ends, however it ends, the workers of all
launches end, then the forkserver, then this process.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing import forkserver, popen_forkserver, resource_tracker, util
from pathlib import Path

import psutil

from labkit.engine import watch
from labkit.engine.excerpt import clipped
from labkit.engine.preload import FORKSERVER, adopt
from labkit.engine.run import Run

TICK_SECONDS = 0.05
LONG_FOLDER = 80  # bytes: Python adds a name of 18 for a socket
MOST_ERROR = 1_000  # characters
ACTIVE: dict[str, Run] = {}  # the launches that go on, by folder
STOPPED: set[tuple[str, int]] = set()  # launches, by folder and number, that the kernel wants no more
LOADED = threading.Event()  # torch is
OUTCOMES, TELLING = None, threading.Lock()  # the pipe to the kernel
CHILDREN: dict[int, multiprocessing.Process] = {}  # every worker seen, by pid: its exit status is told afterwards


def main(kernel_pid: int, folder: str, outcomes: int) -> None:
    """Serve requests until the kernel says so or is gone, or the forkserver is.

    `folder` is private to this process; `outcomes` is a pipe to the kernel: how each launch has ended.
    """
    global OUTCOMES
    os.set_inheritable(outcomes, False)
    OUTCOMES = open(outcomes, "wb", buffering=0)  # noqa: SIM115  (as long as this process)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the kernel alone decides when this process ends
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the kernel may block SIGCHLD, which the forkserver waits for
    try:
        kernel = os.pidfd_open(kernel_pid)
    except ProcessLookupError:
        kernel = None
    adopt()
    _one_poll_at_a_time()
    tempfile.tempdir = folder  # torch unpickles files of known names from there, which nobody else may write
    multiprocessing.set_forkserver_preload(["labkit.engine.preload"])
    os.environ[FORKSERVER] = str(os.getpid())
    if kernel is not None:
        _start_forkserver(folder)  # it imports torch while this process does
        helper = os.pidfd_open(forkserver._forkserver._forkserver_pid)
        threading.Thread(target=_import_torch, daemon=True).start()
        attend(kernel, helper)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(helper, signal.SIGKILL)  # its workers end with it, and no new one is made
    for run in list(ACTIVE.values()):
        watch.kill(run)
    kill_adopted()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _start_forkserver(folder: str) -> None:
    """Start the forkserver, whose socket lies in the folder, however long the folder's name is.

    The path of a Unix socket has at most 107 characters (unix(7)); a descriptor of a long folder gives it a short one.
    """
    config = multiprocessing.current_process()._config
    long = len(os.fsencode(folder)) > LONG_FOLDER
    config["tempdir"] = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}" if long else folder
    util.abstract_sockets_supported = False  # in 3.11.0 Python preferred a socket that every user can connect to
    forkserver.ensure_running()
    config["tempdir"] = folder


def attend(kernel: int, helper: int) -> None:
    """Start a thread for every request; return when the launches that go on have to end."""
    text = b""
    while True:
        readable, _, _ = select.select([0, kernel, helper], [], [], TICK_SECONDS)
        CHILDREN.update({child.pid: child for child in list(multiprocessing.process._children)})
        bury()
        if helper in readable:  # a new one would be bound to the thread that asked for it, and end with that
            print("the forkserver is lost", file=sys.stderr, flush=True)
        if kernel in readable or helper in readable:
            return
        if 0 in readable:
            if not (more := os.read(0, 2**20)):
                return
            *lines, text = (text + more).split(b"\n")
            for request in map(json.loads, lines):
                if "leave" in request:
                    return
                if "stop" in request:
                    STOPPED.add((request["stop"], request["launch"]))
                    continue
                threading.Thread(target=serve, args=(request,), daemon=True).start()


def bury() -> None:
    """Take note of the end of every child and adopted process, so that none stays as a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            continue


def kill_adopted() -> None:
    """Kill what a worker has left that has neither a mark nor a worker above it."""
    own = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    deadline = time.monotonic() + watch.KILL_SECONDS
    while adopted := [child for child in psutil.Process().children() if child.pid not in own]:
        for process in adopted:
            with suppress(psutil.Error):
                process.kill()
        bury()
        if time.monotonic() > deadline:
            return
        time.sleep(TICK_SECONDS / 5)


def _one_poll_at_a_time() -> None:
    """Guard multiprocessing's reading of exit statuses: two launches' threads may poll the same worker."""
    lock, poll = threading.RLock(), popen_forkserver.Popen.poll

    def guarded(self, flag=os.WNOHANG):
        if flag == os.WNOHANG:
            with lock:
                return poll(self, flag)
        return poll(self, flag)

    popen_forkserver.Popen.poll = guarded


def _import_torch() -> None:
    try:
        import torch.distributed.launcher.api  # noqa: F401

        _status_0_can_be_a_failure()
    finally:
        LOADED.set()

    # The errors that it logs are told in the outcome, and logging the first takes a second of further imports.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)


def _status_0_can_be_a_failure() -> None:
    """Make torch's agent treat a worker that ended without returning as failed, even if its exit status is 0.

    torch's own poll waits for the return value of such a worker for ever.
    """
    from torch.distributed.elastic.multiprocessing.api import MultiprocessContext, RunProcsResult
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    poll = MultiprocessContext._poll

    def checked(self):
        result = poll(self)
        left = {*range(self.nprocs)} - {*self._pc.sentinels.values()} - {*self._return_values}
        if result is not None or not left:
            return result
        self.close()
        pids, files = self._pc.pids(), self.error_files
        failures = {rank: ProcessFailure(rank, pids[rank], 0, files[rank]) for rank in left}
        return RunProcsResult(failures=failures, stdouts=self.stdouts, stderrs=self.stderrs)

    MultiprocessContext._poll = checked


def serve(request: dict) -> None:
    """Run one launch to its end and write down how each worker's process ended."""
    run = ACTIVE[request["folder"]] = Run(request["folder"])
    try:
        outcome = _launch(run, request)
    except BaseException as error:
        outcome = {"first": [], "error": clipped(f"{type(error).__name__}: {error}", MOST_ERROR)}
    try:
        watch.kill(run)  # what the workers have started and left; the kernel may be gone before it can
        kill_adopted()
        time.sleep(TICK_SECONDS)
        statuses = {pid: child.exitcode for pid, child in CHILDREN.items()}
        outcome["statuses"] = {pid: status for pid, status in statuses.items() if status is not None}
        for pid in outcome["statuses"]:
            CHILDREN.pop(pid, None)
        ACTIVE.pop(request["folder"], None)
    finally:  # the kernel waits for it
        line = json.dumps({"run": run.mark, "launch": request["launch"], **outcome}) + "\n"
        with TELLING:
            OUTCOMES.write(line.encode())


def _launch(run: Run, request: dict) -> dict:
    """Start the workers through torch.distributed's elastic agent, wait for them; give the ranks that failed first."""
    while not LOADED.wait(TICK_SECONDS) and (request["folder"], request["launch"]) not in STOPPED:
        continue
    if (request["folder"], request["launch"]) in STOPPED:
        return {"first": [], "error": "it was stopped before its workers were started"}
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from labkit.engine import loopback
    from labkit.engine.enter import enter

    run_id = f"{run.mark}-{request['launch']}"
    store = Path(tempfile.gettempdir(), run_id)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=request["workers"],
        run_id=run_id,
        rdzv_backend="loopback",
        local_addr=loopback.ADDRESS,
        max_restarts=0,  # a restart is a fresh launch of the points that are left
        monitor_interval=TICK_SECONDS,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(run.logs / "elastic")),
    )
    config.numa_options = None  # workers may use every core; a lab that binds them says so itself
    try:
        elastic_launch(config, enter)(request | {"store": str(store)})
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return {"first": sorted(exits), "exits": exits, "error": ""}
    finally:
        store.unlink(missing_ok=True)
    return {"first": [], "error": ""}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
