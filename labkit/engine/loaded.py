"""Importing this makes a fresh forkserver ours: it loads what workers import, and ends with its agent."""

import errno
import os
import signal
import socket
from multiprocessing import reduction

from labkit.engine import forkserver, preload
from labkit.engine.processes import HELD_SIGNALS, end_with, set_name

_receive = reduction.recvfds


def _receive_descriptors(connection: socket.socket, most: int) -> list[int]:
    """Receive a new process's descriptors; who connects and sends none, as for want of descriptors, ends nothing."""
    try:
        return _receive(connection, most)
    except EOFError:
        raise ConnectionAbortedError(errno.ECONNABORTED, "no descriptors were sent") from None


end_with(os.getppid())
set_name("forkserver")
signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)  # also in what it forks: none is lost before it can be heard
forkserver.keep_exit_functions()
preload.load_from_environment()
for number in (signal.SIGINT, *HELD_SIGNALS):
    signal.signal(number, signal.SIG_IGN)
reduction.recvfds = _receive_descriptors
