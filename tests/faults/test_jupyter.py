"""In a real Jupyter kernel: the cell's interrupt, a restart, and the event loop that every cell runs in."""

from __future__ import annotations

import os
import shutil

import pytest
from ends_scenes import Family, interrupt_again, soon, the_run
from failing_launches import HERE, apart_in, nothing_left
from jupyter_client.manager import start_new_kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SETUP = """
import asyncio
from ends_plan import Ends
from labkit import launch
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A running kernel, which serves all tests; whatever they leave of it is ended."""
    folder = tmp_path_factory.mktemp("notebook")
    manager, client = start_new_kernel(cwd=str(HERE), env=os.environ | apart_in(folder))
    found = Notebook(manager, client, folder / "runs")
    found.cell(SETUP)
    yield found
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    found.family.end()


@pytest.fixture
def notebook(running):
    """That kernel, before its first run."""
    shutil.rmtree(running.runs, ignore_errors=True)
    return running


class Notebook:
    def __init__(self, manager, client, runs):
        self.manager, self.client, self.runs = manager, client, runs
        self.family = Family(manager.provisioner.pid, runs)

    def cell(self, code: str) -> dict:
        """Run a cell to its end and give the reply."""
        return self.client.execute_interactive(code, timeout=60, output_hook=lambda message: None)["content"]

    def works(self) -> bool:
        return self.cell("assert launch(Ends()).status['state'] == 'finished'")["status"] == "ok"


def reply(notebook, request: str) -> dict:
    while (message := notebook.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != request:
        continue
    return message["content"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_cell(notebook, times):
    request = notebook.client.execute("launch(Ends(faults=('none', 'deaf')))")
    run = soon(lambda: the_run(notebook.runs, rows=6), seconds=60)
    interrupt_again(run, notebook.manager.interrupt_kernel, times)
    told = reply(notebook, request)
    assert (told["status"], told["ename"]) == ("error", "Interrupted")
    assert told["evalue"].startswith("interrupted; 6 rows were measured before that and kept in ")
    assert run.status["state"] == "interrupted"
    nothing_left(run)
    assert notebook.works()


def test_a_restarted_kernel(notebook):
    notebook.client.execute("launch(Ends(faults=('family', 'sleep')))")
    run = soon(lambda: the_run(notebook.runs, rows=15), seconds=60)
    before = {*notebook.family.look()}
    assert len(before) >= 15
    notebook.manager.restart_kernel()
    soon(lambda: not before & {*notebook.family.look()})
    nothing_left(run)
    notebook.client.wait_for_ready(timeout=30)
    notebook.cell(SETUP)
    assert notebook.works()


def test_launches_in_the_event_loop(notebook):
    """A cell runs inside the loop; a launch may also be put into a thread of it, several at once."""
    told = notebook.cell("""
        runs = [launch(Ends()), *await asyncio.gather(*(asyncio.to_thread(launch, Ends()) for _ in range(2)))]
        async def inside():
            return launch(Ends())
        runs.append(await inside())
        assert [run.status["state"] for run in runs] == ["finished"] * 4
        assert [len(run.rows) for run in runs] == [2] * 4
    """)
    assert told["status"] == "ok", told
