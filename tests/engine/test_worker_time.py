"""Worker.time counts as the plan says, or as the call says; a process knows when it was started."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from labkit.engine.worker import Worker


@pytest.mark.parametrize(
    ("counts", "warm_ups", "repeats"),
    [({}, 2, 3), ({"warm_ups": 0}, 0, 3), ({"repeats": 1}, 2, 1), ({"warm_ups": 1, "repeats": 4}, 1, 4)],
)
def test_a_count_that_a_call_does_not_give_is_the_plans(counts, warm_ups, repeats):
    worker = object.__new__(Worker)  # of no run: it has a plan, and drives no GPU
    worker.plan, worker.drives = SimpleNamespace(warm_ups=2, repeats=3), []
    before: list[str] = []
    timings = list(worker.time(lambda: len(before), before=lambda: before.append("ready"), **counts))
    assert [timing.warm_up for timing in timings] == [True] * warm_ups + [False] * repeats
    assert [timing.iteration for timing in timings] == list(range(warm_ups + repeats))
    assert [timing.result for timing in timings] == list(range(1, warm_ups + repeats + 1)), "before each iteration"


AGE = """
import time
from labkit.engine.worker import process_start
print(time.monotonic(), process_start(), open("/proc/uptime", "rb").read().split()[0].decode())
"""


def test_a_process_knows_its_start_where_the_uptime_is_the_containers(tmp_path):
    """As in LXC: /proc/uptime counts from the container's start, and the ticks in /proc/self/stat from the host's."""
    uptime = tmp_path / "uptime"
    uptime.write_text("3.25 3.00\n", encoding="utf-8")
    mount = f'mount --make-rprivate / && mount --bind {uptime} /proc/uptime && exec "$@"'
    begun = time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", AGE], capture_output=True
    )
    assert b"Traceback" not in done.stderr, done.stderr
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    now, start, told = map(float, done.stdout.split())
    assert told == 3.25
    assert begun - 0.05 <= start <= now
