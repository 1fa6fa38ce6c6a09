"""Kernels that end, or are interrupted: scenes that tests play as they are, and without the guard that they need."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
from ends_scenes import Kernel, interrupt_again, soon
from failing_launches import nothing_left

FAMILY = {"new session", "nameless", "daemon", "loader", "pool", "shared memory"}


def family_left(run, family=FAMILY) -> None:
    """Nothing of the family that the ranks have left lives on, nor its shared memory."""
    assert {*run.rows["kind"].dropna()} == family
    nothing_left(run)
    shared = [Path("/dev/shm", name) for name in run.rows["name"].dropna()]
    assert len(shared) == 2
    soon(lambda: not any(file.exists() for file in shared))


def kernel_killed_while_it_measures(tmp_path):
    """With its process group, as by a terminal that closes; alone while workers start, below."""
    with Kernel(tmp_path, "family", "sleep") as kernel:
        run = kernel.run(rows=15)
        assert len(kernel.family.look()) >= 14, "agent, forkserver, trackers, two workers, their nine children"
        os.killpg(kernel.pid, signal.SIGKILL)
        soon(lambda: not kernel.family.look())
        family_left(run)
        assert run.rows["point"].nunique() == 2


def kernel_and_its_agent_killed_together(tmp_path):
    with Kernel(tmp_path, "sleep") as kernel:
        run, agent = kernel.run(rows=2), kernel.helper("labkit.engine.agent")
        agent.suspend()  # so that it has no time to do anything about the kernel's end
        kernel.process.kill()
        agent.kill()
        soon(lambda: not kernel.family.look())
        nothing_left(run)


FORKING = """
import os, threading, time
from ends_plan import Ends
from labkit import launch
def fork():
    time.sleep(1)
    if not os.fork():
        time.sleep(600)
launch(Ends())
threading.Thread(target=fork).start()
launch(Ends(faults=("deaf",)))
"""


def kernel_that_has_forked_and_is_killed(tmp_path):
    """The process that was forked in the middle of a launch holds the agent's stdin open, and lives on."""
    with Kernel(tmp_path, code=FORKING) as kernel:
        run = kernel.run(rows=4)
        kernel_process = psutil.Process(kernel.pid)
        (forked,) = soon(lambda: [p for p in kernel_process.children() if FORKING in p.cmdline()], seconds=60)
        os.kill(kernel.pid, signal.SIGKILL)
        soon(lambda: kernel.family.look() == [forked])
        nothing_left(run)


def helper_killed_while_ranks_measure(tmp_path, name):
    """Without the agent, a grandchild that has shed its environment, session and parents is nobody's: none is here."""
    with Kernel(tmp_path, "named family", "sleep") as kernel:
        run = kernel.run(rows=13)
        kernel.helper(name).kill()
        told = kernel.tells()
        assert (told["error"], told["left"], told["rows"], told["next"]) == ("LauncherLost", 0, 13, "finished"), told
        assert told["text"].startswith("the process that starts the workers is lost, and no worker had failed: ")
        soon(lambda: not kernel.family.look())
        family_left(run, FAMILY - {"nameless"})


def signals_to_the_agent_change_nothing(tmp_path):
    with Kernel(tmp_path, "family", "pause") as kernel:
        run = kernel.run(rows=15)
        agent = kernel.helper("labkit.engine.agent")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            agent.send_signal(number)
            time.sleep(0.4)  # one that heeds it is gone by then
        assert kernel.tells() == {"next": "finished"}
        family_left(run)


def run_that_raises(tmp_path):
    """As test_orphans.test_grandchildren_of_a_run_that_fails, in a kernel that may import a copy of labkit."""
    with Kernel(tmp_path, "family", "raise") as kernel:
        assert kernel.tells()["error"] == "WorkerRaised"
        family_left(kernel.run(rows=15))


def interrupted(told: dict, rows: int) -> None:
    """How a kernel tells of a launch that was interrupted, and of the one after it."""
    assert (told["error"], told["interrupt"], told["state"]) == ("Interrupted", True, "interrupted")
    assert (told["rows"], told["left"], told["next"]) == (rows, 0, "finished")
    assert told["text"].startswith(f"interrupted; {rows} rows were measured before that and kept in ")


def interrupted_while_workers_ignore_sigterm(tmp_path, times):
    """Those after the first come while the clean-up waits for the workers to end."""
    with Kernel(tmp_path, "none", "deaf") as kernel:
        run = kernel.run(rows=6)
        interrupt_again(run, lambda: kernel.process.send_signal(signal.SIGINT), times)
        interrupted(kernel.tells(), rows=6)
        nothing_left(run)
        assert not kernel.family.look()
