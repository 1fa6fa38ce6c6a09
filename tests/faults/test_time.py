"""Time: a clock that jumps and a machine that was suspended are nobody's fault."""

from __future__ import annotations

import signal
import time

import psutil
import pytest
from ends_scenes import Kernel
from failing_launches import launch, nothing_left
from failing_plan import Failing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("jump_s", [4_000.0, -4_000.0])
def test_a_wall_clock_that_jumps(monkeypatch, jump_s):
    """As when a node's clock is set while it measures: seen by the kernel half a second after the launch began."""
    begun, unix_time = time.monotonic(), time.time
    monkeypatch.setattr(time, "time", lambda: unix_time() + jump_s * (time.monotonic() - begun > 0.5))
    run = launch(Failing(faults=("wait",)), limit_s=60)
    nothing_left(run)
    status = run.status
    assert status["state"] == "finished"
    assert 1.5 < status["measuring_seconds"] < status["seconds"] < 60
    assert 0 < status["startup_seconds"] < 60


WAITING = """
import json
from failing_plan import Failing
from labkit import launch
try:
    run = launch(Failing(faults=("wait", "none")), patience_s=6)
    print(json.dumps([run.status["state"], len(run.rows)]))
except BaseException as error:
    print(json.dumps([str(error), 0]))
"""


def test_everything_stopped_for_longer_than_the_patience(tmp_path):
    """As on a laptop that was suspended: kernel, agent and workers stop together, and go on together."""
    with Kernel(tmp_path, code=WAITING) as kernel:
        kernel.run(rows=2)
        family = [psutil.Process(kernel.pid), *kernel.family.look()]
        for process in family:
            process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        for process in reversed(family):
            process.send_signal(signal.SIGCONT)
        assert kernel.tells() == ["finished", 4]
