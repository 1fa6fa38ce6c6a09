"""What a worker is given: nothing of another launcher's, all of the kernel's own, and no door but loopback's."""

from __future__ import annotations

import os
import subprocess
import sys

import pandas as pd
import psutil
import pytest
from failing_launches import HERE, apart, nothing_left, works  # noqa: F401
from failing_plan import Failing

from labkit import node
from labkit.engine.launch import launch
from labkit.repository import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

FOREIGN = {
    "RANK": "7",
    "LOCAL_RANK": "7",
    "WORLD_SIZE": "9",
    "LOCAL_WORLD_SIZE": "9",
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "1",
    "GROUP_RANK": "3",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "64",
    "PET_NNODES": "2",
    "TORCHELASTIC_RUN_ID": "another",
    "TORCHELASTIC_ERROR_FILE": "/nowhere/error.json",
    "OMPI_COMM_WORLD_RANK": "5",
}


def told(gpus: int = 2) -> pd.DataFrame:
    """Return what every worker of a launch was given, by rank; nothing of the launch is left, and the next works."""
    run = launch(Failing(faults=("tell",), gpus=gpus))
    nothing_left(run)
    works()
    rows = run.rows[run.rows["iteration"] == 1].set_index("rank")
    assert rows.index.tolist() == list(range(gpus))
    rows.attrs["status"] = run.status
    return rows


@pytest.mark.parametrize("agent", ["old", "new"])
def test_another_launchers_variables_do_not_leak_in(monkeypatch, agent):
    """Neither those that come up between two launches, nor those that the agent was started under."""
    if agent == "old":
        works()
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    if agent == "new":
        monkeypatch.setenv("PYTHONHASHSEED", "1")  # read as Python starts: the agent is replaced
    for rank, environment in told()["environment"].items():
        assert not {name for name, value in FOREIGN.items() if environment.get(name) == value}
        assert not [name for name in environment if name.startswith(("SLURM_", "PET_", "OMPI_"))]
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        assert expected.items() <= environment.items()


@pytest.mark.parametrize(
    "visible", ["1,0", "GPU-5a0fa4e1-0000-1111-2222-333344445555", "MIG-5a0fa4e1-0000-1111-2222-333344445555", ""]
)
def test_visible_devices_are_passed_on_as_they_are(monkeypatch, visible):
    """By index, UUID or MIG id; what the node makes of it, tests/node shows."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for environment in told()["environment"]:
        assert environment["CUDA_VISIBLE_DEVICES"] == visible
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("own", "gpus", "threads"), [("", 1, node.here().cores), ("", 2, max(1, node.here().cores // 2)), ("3", 2, 3)]
)
def test_threads_are_set_and_recorded(monkeypatch, own, gpus, threads):
    """The kernel's own number, or each rank's share of the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", own) if own else monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    rows = told(gpus)
    assert set(rows["threads"]) == {threads}
    assert {environment["OMP_NUM_THREADS"] for environment in rows["environment"]} == {str(threads)}
    assert rows.attrs["status"]["omp_num_threads"] == threads


def test_this_python_runs_the_workers(tmp_path, monkeypatch):
    """Whatever else PATH leads to."""
    for name in ("python", "python3", "torchrun"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 9\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHASHSEED", "2")  # a new agent
    rows = told()
    assert set(rows["executable"]) == {sys.executable}
    assert {path for family in rows["family"] for path in family} == {os.path.realpath(sys.executable)}


def test_what_python_reads_as_it_starts_reaches_the_workers(monkeypatch):
    works()
    monkeypatch.setenv("PYTHONHASHSEED", "3")
    done = subprocess.run([sys.executable, "-c", "print(hash('labkit'))"], capture_output=True, text=True, check=True)
    assert set(told()["hash"]) == {done.stdout.strip()}


def test_every_socket_is_loopbacks(monkeypatch):
    """Those of the workers, the forkserver and the agent, whatever interface the kernel's environment names."""
    for interface in psutil.net_if_addrs():
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    for sockets in told()["sockets"]:
        assert set(sockets) == {"127.0.0.1"}


def test_workers_stand_where_the_kernel_does(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert set(told()["cwd"]) == {str(tmp_path / name)}


@pytest.mark.quick
def test_a_folder_that_was_removed_under_the_kernel(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    works()


def test_modules_come_from_the_kernels_path(tmp_path, monkeypatch):
    """As it is at the launch: a folder that is added comes in, one that is taken out is gone."""
    monkeypatch.setenv("A_MODULE", "named_alike")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "named_alike.py").write_text(f"NAME = {name!r}\n")
        paths = (tmp_path / name, HERE, REPOSITORY)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
        rows = told()
        assert set(rows["module"]) == {name}
        assert all(
            environment["PYTHONPATH"].endswith(str(tmp_path / name) + f":{HERE}") for environment in rows["environment"]
        )
