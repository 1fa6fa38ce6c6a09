"""Importing this makes a fresh forkserver ours: it loads what workers import, and ends with its agent."""

import os
import signal

from labkit.engine import forkserver, preload
from labkit.engine.processes import HELD_SIGNALS, end_with, set_name

end_with(os.getppid())
set_name("forkserver")
signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)  # also in what it forks: none is lost before it can be heard
forkserver.keep_exit_functions()
preload.load_from_environment()
for number in (signal.SIGINT, *HELD_SIGNALS):
    signal.signal(number, signal.SIG_IGN)
