"""The process beside a kernel: its forkserver loads torch, and forks a process with torchrun's agent for each launch.

Requests come as JSON lines on stdin. When stdin closes or the kernel ends, however it ends, the workers of all
launches end, then the forkserver, then this process.
"""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

from labkit.engine import forkserver
from labkit.engine.messages import LaunchOutcome, Request, StartWorkers
from labkit.engine.processes import KILL_SECONDS, become_subreaper, is_caretaker, kill, members, send_signal
from labkit.engine.run import Run
from labkit.engine.sampler import Sampler

TICK_SECONDS = 0.05
END_SECONDS = 1.0  # for a launch that was stopped, and has no worker any more, to tell its outcome
ACTIVE_RUNS: dict[str, Run] = {}  # the launches that go on, by folder
STOPPED_LAUNCHES: set[tuple[str, int]] = set()  # launches, by folder and number, that the kernel wants no more
TORCH_LOADED = threading.Event()  # by the forkserver
FORKSERVER_DESCRIPTORS: list[int] = []  # one of its process, once it has
LEAVE_LOCK = threading.Lock()


class RequestHandler:
    """Does what the kernel asks for, and tells it by a pipe how launches have ended: a line of JSON each."""

    ending = False  # once it is True, the launches that go on are ended, and this process ends

    def __init__(self, descriptor: int):
        os.set_inheritable(descriptor, False)
        self._pipe = open(descriptor, "wb", buffering=0)  # noqa: SIM115  (as long as this process)
        self._lock = threading.Lock()

    def tell(self, outcome: Mapping[str, Any]) -> None:
        with self._lock:
            self._pipe.write(json.dumps(outcome).encode() + b"\n")

    def start(self, request: StartWorkers) -> None:
        """Start a thread for a request of the kernel."""
        threading.Thread(target=serve_launch, args=(request, self), daemon=True).start()

    def stop(self, folder: str, launch: int) -> None:
        """Take note that the kernel ends this launch."""
        STOPPED_LAUNCHES.add((folder, launch))

    def close(self) -> None:
        """Nobody is told any more: the process ends."""

    def dump_stacks(self, folder: str, pids: list[int]) -> None:
        """Have these workers of a run write where they stand; a kernel on the same node asks them itself."""
        for process in members(Run(folder)):
            if process.pid in pids:
                send_signal(process, signal.SIGUSR1)

    def is_new(self, request: Request) -> bool:
        """Whether the request has not come on another way."""
        return True

    def set_signal_handlers(self) -> None:
        """Ignore the signals that end a process: the kernel alone decides when this one ends."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def main(kernel_pid: int, folder: str, handler: RequestHandler) -> None:
    """Serve requests until the kernel says so or is gone, or the forkserver is.

    `folder` is private to this process; `handler` tells the kernel how each launch has ended. What is imported may
    take long, so another thread attends to the kernel; this one waits, and stays, since the forkserver ends with it.
    """
    handler.set_signal_handlers()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the kernel may block SIGCHLD, which the forkserver waits for
    become_subreaper()
    tempfile.tempdir = os.environ["TMPDIR"] = folder  # some libraries make a folder there while they are imported
    attending = threading.Thread(target=serve_kernel, args=(kernel_pid, folder, handler), daemon=True)
    attending.start()
    FORKSERVER_DESCRIPTORS.append(forkserver.start(folder))
    TORCH_LOADED.set()
    select.select(FORKSERVER_DESCRIPTORS, [], [])  # until the forkserver ends
    print("the forkserver is lost", file=sys.stderr, flush=True)
    leave(folder, handler)


def serve_kernel(kernel_pid: int, folder: str, handler: RequestHandler) -> None:
    """Start a thread for every request until the launches that go on have to end; then leave."""
    try:
        kernel, text = os.pidfd_open(kernel_pid), b""
        while not handler.ending:
            readable, _, _ = select.select([0, kernel], [], [], TICK_SECONDS)
            if TORCH_LOADED.is_set():  # before that, multiprocessing waits for helpers of its own
                reap_children()
            if kernel in readable:
                break
            if 0 in readable:
                if not (more := os.read(0, 2**20)):
                    break
                *lines, text = (text + more).split(b"\n")
                requests = [json.loads(line) for line in lines]
                if any(request["kind"] == "leave" for request in requests):
                    break
                for request in requests:
                    handle(request, handler)
    except ProcessLookupError:  # the kernel is gone already
        pass
    except Exception as error:  # such as a thread that cannot be started: `leave` ends the process before it is told
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        leave(folder, handler)


def leave(folder: str, handler: RequestHandler) -> NoReturn:
    """End all launches, the forkserver with its workers, then this process; the first thread to come does it."""
    LEAVE_LOCK.acquire()
    for server in FORKSERVER_DESCRIPTORS:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)  # its workers end with it, and no new one is made
    for run in list(ACTIVE_RUNS.values()):
        kill(run)
    kill_adopted()
    shutil.rmtree(folder, ignore_errors=True)
    handler.close()
    os._exit(0)


def handle(request: Request, handler: RequestHandler) -> None:
    """Do what the kernel asks for."""
    if not handler.is_new(request):
        return
    if request["kind"] == "stop":
        handler.stop(request["folder"], request["launch"])
    elif request["kind"] == "dump stacks":
        handler.dump_stacks(request["folder"], request["pids"])
    elif request["kind"] == "start":
        # A run that was stopped, and removed since, may have had this name within the same second.
        STOPPED_LAUNCHES.discard((request["folder"], request["launch"]))
        handler.start(request)


def reap_children() -> None:
    """Take note of the end of every adopted process, so that none stays as a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def kill_adopted() -> None:
    """Kill what a worker has left that has neither a mark nor a worker above it."""
    if not TORCH_LOADED.is_set():  # there was no worker, and a helper of multiprocessing may just have been started
        return
    deadline = time.monotonic() + KILL_SECONDS
    while adopted := _adopted():
        for process in adopted:
            with suppress(psutil.Error):
                process.kill()
        reap_children()
        if time.monotonic() > deadline:
            return
        time.sleep(TICK_SECONDS / 5)


def _adopted() -> list[psutil.Process]:
    """Return this process's children but multiprocessing's helpers; a launch's, too, ends when it has done its work."""
    children = [child for child in psutil.Process().children() if child.pid not in forkserver.HELPERS]
    return [child for child in children if not is_caretaker(child)]


def serve_launch(request: StartWorkers, handler: RequestHandler) -> None:
    """Run one launch to its end, once torch is loaded, and tell the kernel how each worker's process ended."""
    run = ACTIVE_RUNS[request["folder"]] = Run(request["folder"], of_node=request.get("node", 0))
    number = (request["folder"], request["launch"])
    while not TORCH_LOADED.wait(TICK_SECONDS) and number not in STOPPED_LAUNCHES:
        continue
    if TORCH_LOADED.is_set() and number not in STOPPED_LAUNCHES:
        sampler = Sampler(run, request["sampled"], request.get("ranks"))
        try:
            outcome = _launch(run, request)
        except Exception as error:
            outcome = LaunchOutcome(first=[], error=f"{type(error).__name__}: {error}")
    else:
        sampler, outcome = None, LaunchOutcome(first=[], error="it was stopped before its workers were started")
    try:
        kill(run)  # what the workers have started and left; the kernel may be gone before it can
        kill_adopted()
        if sampler is not None:
            sampler.stop()
        ACTIVE_RUNS.pop(request["folder"], None)
    finally:  # the kernel waits for it
        handler.tell({"run": run.mark, "launch": request["launch"], **outcome})


def _launch(run: Run, request: StartWorkers) -> LaunchOutcome:
    """Have a process of its own start the workers, with torch.distributed's elastic agent; return how they ended."""
    number, run_id = (request["folder"], request["launch"]), f"{run.mark}-{request['launch']}"
    store = Path(tempfile.gettempdir(), run_id)
    if (of_nodes := request.get("rendezvous")) and of_nodes.get("node") == 0:
        serve_store(of_nodes["address"], of_nodes["port"], of_nodes.get("listener"))
    receiver, sender = forkserver.CONTEXT.Pipe(duplex=False)
    arguments = (run_id, run.elastic_folder, store, request, sender)
    process = forkserver.process("labkit.engine.elastic:run_launch", *arguments)
    process.start()
    sender.close()
    outcome, alone_since = None, None
    while not receiver.poll(TICK_SECONDS):
        # torch's agent waits for ever for the results of workers that have left with status 0.
        if number in STOPPED_LAUNCHES and not members(run):
            alone_since = alone_since or time.monotonic()
            if time.monotonic() > alone_since + END_SECONDS:
                process.kill()
    with suppress(EOFError):
        outcome = json.loads(receiver.recv_bytes())
    store.unlink(missing_ok=True)
    outcome = outcome or LaunchOutcome(first=[], error="the process of this launch was killed")
    outcome["stopped"] = number in STOPPED_LAUNCHES  # by the kernel, before that
    return outcome


@functools.cache
def serve_store(address: str, port: int, listener: int | None) -> None:
    """Have a process serve the store at which several nodes meet, on a socket that listens already."""
    assert listener is not None
    with socket.socket(fileno=os.dup(listener)) as listening:
        forkserver.process("labkit.engine.rendezvous:serve", address, port, listening).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], RequestHandler(int(sys.argv[3])))
