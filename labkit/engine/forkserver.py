"""Multiprocessing's forkserver: the process that holds torch and what workers import, and forks each launch.

It is one chain, by public names of Python's alone: the agent has the forkserver started, that forks a process for each
launch (elastic.py), and that one forks the workers. Each ends with the one above it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import psutil

CONTEXT = multiprocessing.get_context("forkserver")
LONG_FOLDER = 60  # bytes: what is left of the 107 of a Unix socket's path (unix(7)) is enough for multiprocessing's own
HELPERS: set[int] = set()  # processes that multiprocessing runs beside the launches: the forkserver is one of them
AT_EXIT = ExitStack()  # what Python before 3.13 leaves out when a forked process ends


def start(folder: str) -> int:
    """Start the forkserver; return a descriptor of it once everything is loaded. Its socket lies in `folder`.

    It ends when the thread that calls this ends: Linux counts that one as its parent (prctl(2), PR_SET_PDEATHSIG).
    Through a descriptor, a folder with a long name has a short path.
    """
    CONTEXT.set_forkserver_preload(["labkit.engine.loaded"])
    if len(os.fsencode(folder)) > LONG_FOLDER:
        tempfile.tempdir = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}"
    receiver, sender = CONTEXT.Pipe(duplex=False)
    first = process("labkit.engine.forkserver:tell_parent", sender)
    first.start()
    tempfile.tempdir = folder
    sender.close()
    server = int(receiver.recv_bytes())
    first.join()
    HELPERS.update(child.pid for child in psutil.Process().children())
    return os.pidfd_open(server)


def process(function: str, *arguments: Any) -> Any:
    """Return a process, not yet started, that calls a function, such as "labkit.engine.elastic:run_launch"."""
    return CONTEXT.Process(target=_call, args=(function, *arguments))


def _call(function: str, *arguments: Any) -> None:
    """Call a function of a module that the agent does not import, since that imports torch."""
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


def tell_parent(sender: Connection) -> None:
    """Send the number of the process that has forked this one."""
    sender.send_bytes(str(os.getppid()).encode())


def use_own_resource_tracker() -> None:
    """Start a resource tracker for this process and what it forks: it frees their shared memory when they have ended.

    Python starts a new one where the pipe to the tracker, which is the agent's, has no reader any more.
    """
    reader, writer = os.pipe()
    os.close(reader)
    if (to_tracker := resource_tracker.getfd()) is not None:
        os.dup2(writer, to_tracker)
    os.close(writer)
    with warnings.catch_warnings(action="ignore"):  # that the other one had died
        resource_tracker.ensure_running()


def keep_exit_functions() -> None:
    """Collect what modules register to be called at the exit, where Python does not call it in a forked process."""
    import atexit

    if sys.version_info < (3, 13):

        def register(function: Callable, *arguments: Any, **options: Any) -> Callable:
            AT_EXIT.callback(function, *arguments, **options)
            return function

        atexit.register = register
