"""Worker.time counts as the plan says, or as the call says; no older GPU is tried; a process knows its start."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

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


class OnTuring:
    """A worker of one GPU of compute capability 7.5 with 15 GB free, and what it was asked to record and to measure."""

    rank, device = 0, SimpleNamespace(type="cuda")
    plan = SimpleNamespace(
        points=lambda: [SimpleNamespace(point=number, seed=0) for number in range(3)],
        needed_bytes=lambda point: 20e9 if point.point == 2 else 0,
        needed_capability=lambda point: (8, 0) if point.point == 1 else (7, 5),
    )

    def __init__(self):
        self.measured, self.rows = [], []

    def measure(self, worker, point):
        self.measured.append(point.point)

    def record(self, **row):
        self.rows.append(row)

    def _free_bytes(self):
        return 15e9

    def event(self, *_, **__): ...

    agree = require_own_process = event


def test_what_an_older_gpu_lacks_is_a_row_and_is_not_tried(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    worker = OnTuring()
    Worker.measure_points(worker, worker, 0)
    assert worker.measured == [0]
    needs, fits = worker.rows
    assert needs == {"status": "needs compute capability 8.0"}
    assert fits == {"status": "does not fit", "needed_bytes": 20e9, "free_bytes": 15e9}


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
