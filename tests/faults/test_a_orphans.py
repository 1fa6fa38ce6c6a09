"""However the kernel, the agent or the forkserver ends, no process of theirs outlives them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from ends_plan import Ends
from ends_scenes import Kernel, soon
from failing_launches import failed, launch, nothing_left, works  # noqa: F401

from labkit.engine.errors import WorkerHung, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
FAMILY = {"new session", "nameless", "daemon", "loader", "pool", "shared memory"}


def family_left(run, family=FAMILY) -> None:
    """Nothing of the family that the ranks have left lives on, nor its shared memory."""
    assert {*run.rows["kind"].dropna()} == family
    nothing_left(run)
    shared = [Path("/dev/shm", name) for name in run.rows["name"].dropna()]
    assert len(shared) == 2
    soon(lambda: not any(file.exists() for file in shared), seconds=5)


def test_grandchildren_of_a_run_that_does_well():
    run = launch(Ends(faults=("family", "none")))
    assert run.status["state"] == "finished"
    family_left(run)


@pytest.mark.parametrize(("kind", "fault"), [(WorkerRaised, "raise"), (WorkerHung, "hang")])
def test_grandchildren_of_a_run_that_fails(kind, fault):
    family_left(failed(kind, "family", fault, plan=Ends, patience_s=6).run)


@pytest.mark.quick
def test_a_kernel_killed_while_it_measures(tmp_path):
    """With its process group, as by a terminal that closes; alone while workers start, below."""
    with Kernel(tmp_path, "family", "sleep") as kernel:
        run = kernel.run(rows=16)
        assert len(kernel.family.look()) >= 15, "agent, forkserver, trackers, two workers, five children each"
        os.killpg(kernel.pid, signal.SIGKILL)
        soon(lambda: not kernel.family.look())
        family_left(run)
        assert run.rows["point"].nunique() == 2


def test_a_kernel_killed_while_workers_start(tmp_path):
    with Kernel(tmp_path, "sleep") as kernel:
        run = kernel.run()
        os.kill(kernel.pid, signal.SIGKILL)
        soon(lambda: not kernel.family.look())
        nothing_left(run)


def test_a_kernel_killed_while_its_agent_starts(tmp_path):
    with Kernel(tmp_path, "sleep") as kernel:
        soon(lambda: kernel.helpers("labkit.engine.agent"))
        os.kill(kernel.pid, signal.SIGKILL)
        soon(lambda: not kernel.family.look())


def test_a_kernel_and_its_agent_killed_together(tmp_path):
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


def test_a_kernel_that_has_forked_and_is_killed(tmp_path):
    """The process that was forked in the middle of a launch holds the agent's stdin open, and lives on."""
    with Kernel(tmp_path, code=FORKING) as kernel:
        run = kernel.run(rows=4)
        (forked,) = soon(lambda: [p for p in psutil.Process(kernel.pid).children() if FORKING in p.cmdline()])
        os.kill(kernel.pid, signal.SIGKILL)
        soon(lambda: kernel.family.look() == [forked])
        nothing_left(run)


@pytest.mark.parametrize(
    "name", [pytest.param("labkit.engine.agent", marks=pytest.mark.quick), "multiprocessing.forkserver"]
)
def test_a_helper_killed_while_ranks_measure(tmp_path, name):
    """Without the agent, a grandchild that has shed its environment, session and parents is nobody's: none is here."""
    with Kernel(tmp_path, "named family", "sleep") as kernel:
        run = kernel.run(rows=14)
        kernel.helper(name).kill()
        told = kernel.tells()
        assert (told["error"], told["left"], told["rows"], told["next"]) == ("LauncherLost", 0, 14, "finished")
        assert told["text"].startswith("the process that starts the workers is lost, and no worker had failed: ")
        soon(lambda: not kernel.family.look())
        family_left(run, FAMILY - {"nameless"})


def test_signals_to_the_agent_change_nothing(tmp_path):
    with Kernel(tmp_path, "family", "pause") as kernel:
        run = kernel.run(rows=16)
        agent = kernel.helper("labkit.engine.agent")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            agent.send_signal(number)
            time.sleep(0.4)  # one that heeds it is gone by then
        assert kernel.tells() == {"next": "finished"}
        family_left(run)
