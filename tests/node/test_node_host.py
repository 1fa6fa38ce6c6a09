"""The host's state is what the kernel's files say; a file that is missing is a field that is not known."""

import os
import subprocess
import sys
import threading
import time

import pytest

from labkit.node import host
from labkit.node.conditions import HostState

PRESSURE = "some avg10=20.80 avg60=16.18 avg300=16.10 total=18109814792\nfull avg10=1.00 avg60=0 avg300=0 total=0\n"


def made(folder, files: dict[str, str]):
    """Write files below a folder that stands for the root of a machine."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


V2 = {
    "proc/self/cgroup": "0::/jobs/one/step\n",
    "sys/fs/cgroup/jobs/one/step/cpu.max": "max 100000\n",
    "sys/fs/cgroup/jobs/one/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/jobs/cpu.max": "800000 100000\n",
}
V1 = {
    "proc/self/cgroup": "5:memory:/jobs\n2:cpu,cpuacct:/jobs\n0::/\n",
    "sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us": "100000\n",
}
CONTAINER = {"proc/self/cgroup": "0::/../host/only\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}
NO_QUOTA = {
    "proc/self/cgroup": "1:cpu:/\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (V2, 1.5),
        (V1, 0.5),
        (CONTAINER, 2.0),
        (NO_QUOTA, None),
        ({}, None),
        ({"proc/self/cgroup": "nonsense\n0::/x\n", "sys/fs/cgroup/x/cpu.max": "many few\n"}, None),
    ],
)
def test_the_quota_of_the_control_group(tmp_path, files, expected):
    assert host.cgroup_quota(made(tmp_path, files)) == expected


def test_pressure(tmp_path):
    assert host.state(made(tmp_path, {"proc/pressure/cpu": PRESSURE})).cpu_pressure_percent == 20.8


def test_what_a_machine_does_not_tell_is_not_known(tmp_path):
    state = host.state(tmp_path)
    assert state == HostState(state.cores, memory_available_gib=state.memory_available_gib)
    assert "cpu_pressure_percent" not in host.sample(tmp_path)


def test_a_busy_neighbour_is_seen():
    """As many busy processes as there are cores load them all, and make a worker wait for a core."""
    burn = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(burn) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        host.sample()
        deadline = time.monotonic() + 30
        while True:
            time.sleep(0.5)
            seen = host.sample()
            waited = seen.get("cpu_pressure_percent", 100.0)  # not every kernel counts it
            if (seen["cpu_percent"] > 90 and waited > 5) or time.monotonic() > deadline:
                break
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert seen["cpu_percent"] > 90
    assert waited > 5


def test_an_affinity_of_one_core_is_one_core():
    """taskset(1) sets it for the kernel and everything below it."""
    seen = []
    core = min(os.sched_getaffinity(0))

    def look() -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        seen.append(host.state().cores)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [1]
