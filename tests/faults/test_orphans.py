"""However the kernel, the agent or the forkserver ends, no process of theirs outlives them."""

from __future__ import annotations

import os
import signal

import ends_endings
import pytest
from ends_endings import family_left
from ends_plan import Ends
from ends_scenes import Kernel, soon
from failing_launches import failed, launch, nothing_left

from labkit.engine import processes
from labkit.engine.errors import WorkerHung, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def test_grandchildren_of_a_run_that_does_well():
    run = launch(Ends(faults=("family", "none")))
    assert run.status["state"] == "finished"
    family_left(run)


@pytest.mark.parametrize(("kind", "fault"), [(WorkerRaised, "raise"), (WorkerHung, "hang")])
def test_grandchildren_of_a_run_that_fails(kind, fault):
    family_left(failed(kind, "family", fault, plan=Ends, patience_s=6).run)


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


@pytest.mark.quick
def test_a_kernel_killed_while_it_measures(tmp_path):
    ends_endings.kernel_killed_while_it_measures(tmp_path)


def test_a_kernel_and_its_agent_killed_together(tmp_path):
    ends_endings.kernel_and_its_agent_killed_together(tmp_path)


def test_what_ranks_have_started_when_kernel_and_agent_are_killed_together(tmp_path):
    """The exception: it lives on. What has an environment of its own has no mark; all else is ended by it."""
    with Kernel(tmp_path, "family", "sleep") as kernel:
        run, agent = kernel.run(rows=15), kernel.helper("labkit.engine.agent")
        agent.suspend()
        kernel.process.kill()
        agent.kill()
        ranks = run.rows["pid"][run.rows["kind"].isna()]
        soon(lambda: not any(processes.is_alive(int(pid)) for pid in ranks))
        kinds = run.rows.dropna(subset="kind").set_index("pid")["kind"]
        assert {"new session", "daemon"} <= {kinds.get(process.pid) for process in processes.members(run)}
        processes.kill(run)
        assert not processes.members(run)
        assert {kinds.get(process.pid) for process in kernel.family.look()} <= {"nameless", None}


def test_a_kernel_that_has_forked_and_is_killed(tmp_path):
    ends_endings.kernel_that_has_forked_and_is_killed(tmp_path)


@pytest.mark.parametrize("name", [pytest.param("labkit.engine.agent", marks=pytest.mark.quick), "forkserver"])
def test_a_helper_killed_while_ranks_measure(tmp_path, name):
    ends_endings.helper_killed_while_ranks_measure(tmp_path, name)


def test_signals_to_the_agent_change_nothing(tmp_path):
    ends_endings.signals_to_the_agent_change_nothing(tmp_path)
