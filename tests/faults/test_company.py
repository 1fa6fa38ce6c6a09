"""Launches beside, after and inside each other: none disturbs another, and none leaves anything that adds up."""

from __future__ import annotations

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from ends_plan import Changing, Ends
from ends_scenes import Kernel, copy_of_labkit, soon
from failing_launches import HERE, failed, launch, nothing_left, works

from labkit.engine.errors import RunError, WorkerDied, WorkerRaised
from labkit.engine.session import AgentSession
from labkit.repository import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
LAUNCHES = 15


@pytest.mark.quick
def test_two_kernels_of_which_one_is_interrupted(tmp_path):
    with Kernel(tmp_path / "one", "deaf") as one, Kernel(tmp_path / "two", "none", "pause", "pause") as two:
        one.run(rows=4)
        run = two.run(rows=4)
        one.process.send_signal(signal.SIGINT)
        assert one.tells()["error"] == "Interrupted"
        assert two.tells() == {"next": "finished"}
        assert len(run.rows) == 6


def test_four_threads_of_which_two_fail():
    def ends(faults: tuple[str, ...]) -> str:
        try:
            return launch(Ends(faults=faults)).status["state"]
        except RunError as error:
            nothing_left(error.run)
            return error.sentence

    plans = [("none", "pause"), ("none", "raise"), ("pause", "exit 0"), ("none",) * 3]
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(ends, plans))
    assert told == [
        "finished",
        "rank 1 raised ValueError: this rank raises on purpose at point 1 (seed=0, fault=raise)",
        "rank 1 ended before it had finished, without an error status at point 1 (seed=0, fault=exit 0)",
        "finished",
    ]
    works()


FORKING = """
import json, os
from ends_plan import Ends
from labkit import launch
states = [launch(Ends()).status["state"]]
child = os.fork()
states += [launch(Ends(faults=("pause",))).status["state"]]
if not child:
    os._exit(0 if states == ["finished"] * 2 else 1)
states.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps([*states, launch(Ends()).status["state"]]))
"""


def test_a_kernel_that_has_forked(tmp_path):
    """Both launch, at the same time; each has an agent of its own, which ends with it."""
    with Kernel(tmp_path, code=FORKING) as kernel:
        assert kernel.tells() == ["finished", "finished", 0, "finished"]
        soon(lambda: not kernel.family.look())


WRITTEN = """
import os
import ends_plan
SETTING = {setting}
def measure(worker, point):
    worker.record(iteration=0, setting=SETTING, variable=os.environ.get("ENDS_VARIABLE"))
"""


def test_what_has_changed_between_two_launches_is_seen(tmp_path, monkeypatch):
    """The lab's code, however quickly it is edited, and the environment; a module may even end its process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, HERE, REPOSITORY))))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    module = tmp_path / "ends_written.py"
    for setting in range(4):
        module.write_text(WRITTEN.format(setting=setting))
        os.utime(module, (1e9, 1e9))  # two edits within one second: a cached module would pass for the new one
        monkeypatch.setenv("ENDS_VARIABLE", str(setting))
        rows = launch(Changing()).rows
        assert (rows["setting"].tolist(), rows["variable"].tolist()) == ([setting] * 2, [str(setting)] * 2)
    module.write_text("import os\nimport ends_plan\nif os.environ['RANK'] == '1':\n    os._exit(0)")
    error = failed(WorkerDied, plan=Changing)
    assert error.sentence == "rank 1 ended before it had finished, without an error status before the first point"
    module.write_text("raise SystemExit(0)")
    assert failed(WorkerRaised, plan=Changing, rank=pytest.approx(0.5, abs=0.5)).sentence.count("SystemExit: 0 before")
    module.write_text(WRITTEN.format(setting=7))
    assert set(launch(Changing()).rows["setting"]) == {7}


EDITING = """
import json
from pathlib import Path
from ends_plan import Ends
from labkit import launch
from labkit.engine import session
def rows():
    return [*launch(Ends()).rows, session.AgentSession._current.process.pid]
before, again = rows(), rows()
file = Path(session.__file__).with_name("json_lines.py")
text = file.read_text()
assert text.count('**point, "status": "ok"') == 1
file.write_text(text.replace('**point, "status": "ok"', '**point, "edited": True, "status": "ok"'))
print(json.dumps([before, again, rows()]))
"""


def test_an_edited_engine_is_loaded_anew(tmp_path):
    copy = copy_of_labkit(tmp_path)
    with Kernel(tmp_path, code=EDITING, PYTHONPATH=f"{copy}{os.pathsep}{HERE}") as kernel:
        before, again, after = kernel.tells()
        assert before == again, "the same agent"
        assert "edited" in after
        assert after[-1] != before[-1]
        assert not psutil.pid_exists(before[-1])
        soon(lambda: not kernel.family.look())


def test_fifteen_launches_in_a_row_leave_nothing_that_adds_up():
    def counts() -> dict[str, int]:
        """Descriptors, threads and ports of kernel, agent and forkserver; processes below the kernel; shared memory."""
        kernel, agent = psutil.Process(), psutil.Process(AgentSession._current.process.pid)
        (forkserver,) = (p for p in agent.children() if p.name() == "forkserver")
        gc.collect()  # what a dead cycle still holds is no leak
        found = {"the kernel's children": len(kernel.children(recursive=True))}
        for name, process in {"kernel": kernel, "agent": agent, "forkserver": forkserver}.items():
            found |= {
                f"{name}'s descriptors": process.num_fds(),
                f"{name}'s threads": process.num_threads(),
                f"{name}'s ports": len(process.net_connections()),
            }
        return found

    def grown() -> dict[str, str]:
        return {name: f"{before[name]} → {after}" for name, after in counts().items() if after > before[name]}

    for _ in range(3):
        launch(Ends())
    shared, before, memory = {*Path("/dev/shm").iterdir()}, counts(), agent_mib()
    for _ in range(LAUNCHES):
        assert launch(Ends()).status["state"] == "finished"
    with suppress(AssertionError):  # the last launch's processes may still be going away
        soon(lambda: not grown())
    assert grown() == {}
    assert agent_mib() - memory < LAUNCHES
    soon(lambda: len({*Path("/dev/shm").iterdir()} - shared) < LAUNCHES)  # other programs use it too


def agent_mib() -> float:
    return psutil.Process(AgentSession._current.process.pid).memory_info().rss / 2**20
