"""One agent beside a kernel, and nothing of it left: after a reload, and after both were killed together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from faults_plan import Faults
from launches import HERE, soon

from labkit.engine.session import AgentSession
from labkit.launching import launch

pytestmark = pytest.mark.timeout(120)

RELOADING = """
import importlib, json, sys
import psutil

def agents():
    return [process.pid for process in psutil.Process().children() if "labkit.engine.agent" in process.cmdline()]

def launch():
    import faults_plan
    from labkit.launching import launch
    return launch(faults_plan.Faults()).status["state"]

told = [[launch(), agents()]]
for name in sorted(name for name in sys.modules if name.startswith("labkit.engine")):
    importlib.reload(sys.modules[name])
importlib.reload(sys.modules["faults_plan"])
told.append([launch(), agents()])
for name in [name for name in sys.modules if name.startswith(("labkit", "faults"))]:
    del sys.modules[name]
told.append([launch(), agents()])
print(json.dumps(told))
"""


@pytest.mark.slow
def test_a_reloaded_engine_keeps_its_agent():
    """As with autoreload, or after the modules were removed and imported again."""
    command = [sys.executable, "-c", RELOADING]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=100)
    told = json.loads(ended.stdout)
    assert [state for state, _ in told] == ["finished"] * 3
    assert [len(agents) for _, agents in told] == [1, 1, 1]
    assert len({agent for _, (agent,) in told}) == 1


WARMING = """
import json, psutil, time
from labkit.engine.session import AgentSession

def agents():
    children = psutil.Process().children()
    while not all(child.cmdline() for child in children):  # empty for a moment after the call that started it
        time.sleep(0.01)
    return [child.pid for child in children if "labkit.engine.agent" in child.cmdline()]

AgentSession.warm("faults_worker")
told = [agents()]
import faults_plan
from labkit.launching import launch
launch(faults_plan.Faults())
print(json.dumps([*told, agents()]))
"""


@pytest.mark.parametrize(("warm", "before"), [("1", 1), ("0", 0)])
def test_an_agent_started_before_the_first_launch_serves_it(warm, before):
    environment = os.environ | {"LABKIT_WARM": warm}
    command = [sys.executable, "-c", WARMING]
    ended = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=100)
    early, later = json.loads(ended.stdout)
    assert len(early) == before
    assert len(later) == 1
    assert early in ([], later)


@pytest.mark.parametrize("removed", ["", "pymp-*/listener-*", "pymp-*"])
@pytest.mark.slow
def test_an_agent_whose_folder_was_removed_or_emptied_is_replaced(removed):
    """As by a cleaner of temporary files, while nothing runs."""
    launch(Faults())
    agent = AgentSession._current.process.pid
    for found in (
        [*Path(AgentSession._current._folder).glob(removed)] if removed else [Path(AgentSession._current._folder)]
    ):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    assert [launch(Faults()).status["state"] for _ in range(2)] == ["finished"] * 2
    assert not psutil.pid_exists(agent)


@pytest.mark.slow
def test_a_renewed_agent_has_replaced_the_one_before():
    launch(Faults())
    agent = AgentSession._current.process.pid
    AgentSession.renew("faults_worker")
    assert not psutil.pid_exists(agent)
    renewed = AgentSession._current.process.pid
    assert launch(Faults()).status["state"] == "finished"
    assert AgentSession._current.process.pid == renewed


def test_the_reason_of_an_agents_end_is_no_line_of_a_warning():
    """Python's resource tracker may warn last of all."""
    session = AgentSession.__new__(AgentSession)
    session.process = SimpleNamespace(poll=lambda: 0)
    with tempfile.TemporaryFile() as session._log:
        session._log.write(b"the forkserver is lost\n/lib/a.py:254: UserWarning: resource_tracker: There\n")
        session._log.write(b"  warnings.warn('resource_tracker: There appear to be %d '\n")
        session._log.flush()
        assert session.how_it_ended() == "it ended with status 0: the forkserver is lost"
        session._log.write(b"EOFError: of the forkserver\n/lib/a.py:1: UserWarning: b\n  warnings.warn(\n")
        session._log.flush()
        assert session.how_it_ended() == "it ended with status 0: EOFError: of the forkserver"


@pytest.mark.slow
def test_what_an_agent_killed_with_its_kernel_has_left(tmp_path):
    """The next agent removes its folder, and leaves that of an agent that lives alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    environment = os.environ | {"TMPDIR": str(folder)}
    start = (
        "from labkit.engine.session import AgentSession as A\nwith A.borrow('labkit.engine.call'): print(1), input()"
    )

    def kernel() -> subprocess.Popen:
        command, pipe = [sys.executable, "-u", "-c", start], subprocess.PIPE
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdin=pipe, stdout=pipe)
        assert process.stdout.readline() == b"1\n"
        return process

    with kernel() as lives:
        (of_the_living,) = folder.glob("labkit-agent-*")
        with kernel() as killed:
            (agent,) = psutil.Process(killed.pid).children()
            agent.suspend()  # so that it has no time to clean up
            killed.kill()
            agent.kill()
            psutil.wait_procs([agent])
        assert len([*folder.glob("labkit-agent-*")]) == 2
        with kernel() as another:
            assert of_the_living.exists()
            assert len([*folder.glob("labkit-agent-*")]) == 2, "of those that live"
            another.communicate(b"\n")
        lives.communicate(b"\n")
    soon(lambda: not [*folder.iterdir()])
