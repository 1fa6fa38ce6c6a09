"""A launch that waits for GPUs starts when their holder is killed, and one that is interrupted leaves nothing.

Kernels in processes of their own contend for two GPUs that a file names.
"""

from __future__ import annotations

import getpass
import json
import signal
from pathlib import Path

import pytest
from ends_scenes import Kernel, soon

from labkit.engine.locks import holding_pids

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
QUEUES = """
import json, signal
from ends_plan import Ends
from labkit.engine import progress
from labkit.launching import launch
signal.signal(signal.SIGINT, signal.default_int_handler)
progress.ProgressBars.show_waiting = lambda self, text: print(text, flush=True)
try:
    run = launch(Ends())
    print(json.dumps({"state": run.status["state"], "rows": len(run.rows)}))
except BaseException as error:
    print(json.dumps({"error": type(error).__name__, "interrupt": isinstance(error, KeyboardInterrupt)}))
"""


@pytest.fixture
def locks(tmp_path, monkeypatch):
    """The folder of the locks of two GPUs."""
    (folder := tmp_path / "locks").mkdir()
    (tmp_path / "gpus.json").write_text(json.dumps({"a": "", "b": ""}))
    monkeypatch.setenv("LABKIT_LOCKS", str(folder))
    monkeypatch.setenv("LABKIT_STAND_IN_GPUS", str(tmp_path / "gpus.json"))
    return folder


def held(locks: Path) -> dict[str, list[int]]:
    """Return which files are locked, and by which processes."""
    return {file.name: pids for file in locks.iterdir() if (pids := holding_pids(file))}


def waits(kernel: Kernel) -> str:
    """What the kernel tells first: that its launch waits, for whom."""
    told = kernel.process.stdout.readline()
    assert f"waits for 2 free GPU(s) (GPU 0, 1: {getpass.getuser()} (process " in told
    return told


def test_an_interrupted_launch_in_the_queue_leaves_nothing_and_the_next_starts_when_the_holder_is_killed(
    tmp_path, locks
):
    """SIGKILL gives the holder no time to release anything."""
    with Kernel(tmp_path / "holder", "sleep") as holder:
        holder.run()
        before = held(locks)
        with Kernel(tmp_path / "waiter", code=QUEUES) as waiter:
            waits(waiter)
            waiter.process.send_signal(signal.SIGINT)
            out, _ = waiter.process.communicate(timeout=30)
            assert json.loads(out.splitlines()[-1]) == {"error": "NotStarted", "interrupt": True}
            assert not waiter.family.look(), "no agent, no worker"
            assert not [*waiter.runs.glob("*")]
        assert held(locks) == before
        with Kernel(tmp_path / "next", code=QUEUES) as waiter:
            waits(waiter)
            holder.process.send_signal(signal.SIGKILL)
            out, _ = waiter.process.communicate(timeout=60)
            assert json.loads(out.splitlines()[-1])["state"] == "finished"
        soon(lambda: not holder.family.look())
    assert held(locks) == {}
