"""The launcher's promise over NCCL: needs a node with two or more GPUs; `pytest -s` shows how long each took."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu_plan import GpuFaults

from labkit import node
from labkit.engine import processes
from labkit.engine.errors import WorkerDied, WorkerHung, WorkerRaised
from labkit.engine.run import Run
from labkit.launching import launch
from labkit.repository import REPOSITORY

HERE = Path(__file__).parent
GPUS = node.here().gpus
LEFT_MIB = 64  # what a driver may keep for itself

pytestmark = [
    pytest.mark.skipif(len(GPUS) < 2, reason="needs two GPUs or more"),
    pytest.mark.timeout(120),
]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Runs go to the test's own folder, and workers find the lab of this folder."""
    paths = [str(HERE), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))


@pytest.fixture(autouse=True)
def gpu_memory_comes_back():
    before = node.used_mib(GPUS)
    yield
    deadline = time.monotonic() + 60
    while any(mib > before[gpu] + LEFT_MIB for gpu, mib in node.used_mib(GPUS).items()):
        assert time.monotonic() < deadline, f"GPU memory before {before}, after {node.used_mib(GPUS)}"
        time.sleep(0.2)


def clean(run):
    """Nothing of the run is left, and the next launch works."""
    assert not processes.members(run)
    rows = launch(GpuFaults(), progress=False).rows
    assert (rows["sum"] == len(GPUS) ** 2).all()


def told(what, begun):
    print(f"\n{what}: back after {time.monotonic() - begun:.1f} s")


def test_out_of_memory_on_one_rank_is_a_row_and_the_sweep_goes_on():
    begun = time.monotonic()
    run = launch(GpuFaults(faults=("none", "out of memory", "none")), progress=False)
    told("out of memory on one rank, two more points", begun)
    rows = run.rows
    assert rows[rows["point"] == 1]["status"].tolist() == ["out of memory"]
    assert rows[rows["point"] == 1]["rank"].tolist() == [len(GPUS) - 1]
    assert rows[rows["status"] == "ok"].groupby("point")["rank"].nunique().to_dict() == {0: len(GPUS), 2: len(GPUS)}
    assert run.status["launches"] == 2
    clean(run)


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("raises", WorkerRaised, "raised ValueError: this rank fails on purpose"),
        ("killed", WorkerDied, "was killed by SIGKILL"),
        ("absent", WorkerHung, "no rank made progress for 5 s"),
    ],
)
def test_one_rank_fails_while_the_others_are_in_all_reduce(fault, kind, says):
    launch(GpuFaults(), progress=False)  # the agent is warm
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        launch(GpuFaults(faults=("none", fault)), progress=False, patience_s=5)
    told(fault, begun)
    assert says in caught.value.sentence
    assert caught.value.rank == len(GPUS) - 1
    assert caught.value.gpu == GPUS[-1].index
    assert (caught.value.run.rows["point"] == 0).sum() == len(GPUS)
    clean(caught.value.run)


def test_nothing_outlives_a_killed_kernel(tmp_path):
    kernel = subprocess.Popen([sys.executable, str(HERE / "gpu_kernel.py")], env=os.environ)
    deadline = time.monotonic() + 60
    events = (tmp_path / "runs").glob
    while not (logs := list(events("*/logs/rank0.events.jsonl"))) or "point" not in logs[0].read_text():
        assert time.monotonic() < deadline
        assert kernel.poll() is None
        time.sleep(0.1)
    time.sleep(3)  # they are in the collective now
    run = Run(logs[0].parents[1])
    assert len(processes.members(run)) >= len(GPUS)
    begun = time.monotonic()
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    while processes.members(run):
        assert time.monotonic() < begun + 60
        time.sleep(0.05)
    told("killed kernel, all its workers gone", begun)
    clean(run)
