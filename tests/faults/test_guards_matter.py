"""With a guard switched off, its test fails: its kernels import a copy of labkit in which that one line is another."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path

import ends_endings as endings
import ends_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
import ends_scenes
import psutil
import pytest
from failing_launches import HERE

from labkit.engine.processes import is_caretaker
from labkit.engine.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
PATIENCE_S = 3.0  # for what does not end without its guard, under any load; with it, it ends within two seconds


GUARDS = {
    "workers end with their forkserver, and that with its agent": (
        "processes.py",
        "ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)",
        "pass",
        endings.kernel_and_its_agent_killed_together,
        "soon(lambda: not kernel.family.look())",
    ),
    "the agent sees its kernel end": (
        "agent.py",
        "if kernel in readable:",
        "if False:",
        endings.kernel_that_has_forked_and_is_killed,
        "soon(lambda: kernel.family.look() == [forked])",
    ),
    "the agent kills what the runs of a lost kernel have started": (
        "agent.py",
        "    for run in list(ACTIVE_RUNS.values()):\n        kill(run)\n",
        "",
        endings.kernel_killed_while_it_measures,
        "soon(lambda: not ",  # a process is left, or shared memory whose tracker was killed
    ),
    "the agent does not end when the kernel does not say so": (
        "agent.py",
        "signal.signal(number, signal.SIG_IGN)",
        "pass",
        endings.signals_to_the_agent_change_nothing,
        "agent.send_signal(number) or assert kernel.tells()",
    ),
    "who has lost its parents stays below a worker": (
        "processes.py",
        "ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)",
        "pass",
        endings.signals_to_the_agent_change_nothing,
        "family_left(run)",
    ),
    "the mark tells who belongs to the run": (
        "processes.py",
        "if here and environment.get(MARK_VARIABLE) == run.mark:",
        "if False:",
        partial(endings.helper_killed_while_ranks_measure, name="labkit.engine.agent"),
        "soon(lambda: not kernel.family.look())",
    ),
    "the kernel ends a run whose agent is lost": (
        "launches.py",
        "                    self.end()\n",
        "",
        partial(endings.helper_killed_while_ranks_measure, name="labkit.engine.agent"),
        'assert (told["error"], told["left"]',
    ),
    "a launch hears one interrupt, and none while it cleans up": (
        "interrupts.py",
        "self._before = signal.signal(signal.SIGINT, self._on_interrupt)",
        "pass",
        partial(endings.interrupted_while_workers_ignore_sigterm, times=4),
        "interrupted(kernel.tells(), rows=6)",
    ),
    "the forkserver's loss ends the launch": (
        "agent.py",
        "select.select(FORKSERVER_DESCRIPTORS, [], [])  # until the forkserver ends",
        "attending.join()",
        partial(endings.helper_killed_while_ranks_measure, name="forkserver"),
        "told = kernel.tells()",
    ),
}


@pytest.mark.parametrize(("file", "guard", "instead", "test", "line"), GUARDS.values(), ids=GUARDS)
def test_without_it(tmp_path, monkeypatch, file, guard, instead, test, line):
    copy = ends_scenes.copy_of_labkit(tmp_path)
    changed = copy / "labkit" / "engine" / file
    assert changed.read_text().count(guard) == 1
    changed.write_text(changed.read_text().replace(guard, instead))
    monkeypatch.setenv("PYTHONPATH", f"{copy}{os.pathsep}{HERE}")
    monkeypatch.setattr(ends_scenes, "PATIENCE_S", PATIENCE_S)
    try:
        with pytest.raises(Exception) as caught:
            test(tmp_path)
    finally:
        end_what_is_left(tmp_path)
    lines = [str(frame.line) for frame in traceback.extract_tb(caught.tb)]
    assert any(each.startswith(one) for each in lines for one in line.split(" or ")), lines


def end_what_is_left(folder) -> None:
    """End the processes that keep their runs in this folder, and all that such runs recorded."""
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("LABKIT_RUNS", "").startswith(str(folder)) and not is_caretaker(process):
                left.append(process)
    for file in folder.rglob("node.json"):
        rows = Run(file.parent).rows
        for name in rows["name"].dropna() if "name" in rows else ():
            Path("/dev/shm", name).unlink(missing_ok=True)
        for pid, started in rows[["pid", "started"]].dropna().itertuples(index=False) if "pid" in rows else ():
            with suppress(psutil.NoSuchProcess):
                if abs((process := psutil.Process(int(pid))).create_time() - started) < 1:
                    left.append(process)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
