"""What a worker is given: nothing of another launcher's, all of the kernel's own, and no door but loopback's.

Three launches tell it for all tests, in settings that do not disturb each other: each new agent takes seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from failing_launches import HERE, apart_in, launch, nothing_left, works
from failing_plan import Failing

from labkit import node
from labkit.engine.session import AgentSession, agent_fingerprint
from labkit.repository import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

FOREIGN = {"RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "9", "LOCAL_WORLD_SIZE": "9", "GROUP_RANK": "3"}
FOREIGN |= {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1", "SLURM_PROCID": "3", "SLURM_NTASKS": "64"}
FOREIGN |= {"TORCHELASTIC_RUN_ID": "another", "TORCHELASTIC_ERROR_FILE": "/nowhere/error.json"}
FOREIGN |= {"PET_NNODES": "2", "OMPI_COMM_WORLD_RANK": "5"}

VISIBLE = {
    "alone": "",
    "old agent": "GPU-5a0fa4e1-0000-1111-2222-333344445555",
    "new agent": "MIG-5a0fa4e1-0000-1111-2222-333344445555",
}
CORES = node.here().usable_cores
THREADS = {"alone": max(1, int(CORES)), "old agent": max(1, int(CORES // 2)), "new agent": 3}
CASES = pytest.mark.parametrize("case", ["old agent", "new agent"])


def told(gpus: int = 2) -> pd.DataFrame:
    """Return what every worker of a launch was given, by rank; nothing of the launch is left."""
    run = launch(Failing(faults=("tell",), gpus=gpus))
    nothing_left(run)
    rows = run.rows[run.rows["iteration"] == 1].set_index("rank")
    assert rows.index.tolist() == list(range(gpus))
    rows.attrs["status"] = run.status
    return rows


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Where each case stands; there it finds a module that has one name in all."""
    folder = tmp_path_factory.mktemp("folders")
    for name in VISIBLE:
        (folder / name).mkdir()
        (folder / name / "named_alike.py").write_text(f"NAME = {name!r}\n")
    for name in ("python", "python3", "torchrun"):
        (folder / name).write_text("#!/bin/sh\nexit 9\n")
        (folder / name).chmod(0o700)
    return folder


@pytest.fixture(scope="module")
def cases(folders) -> dict[str, pd.DataFrame]:
    """What workers were given: one alone; those of its agent, in another launcher's surroundings; a new agent's."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:

        def tell(case: str, gpus: int = 2) -> None:
            patch.setenv("CUDA_VISIBLE_DEVICES", VISIBLE[case])
            patch.chdir(folders / case)
            found[case] = told(gpus)
            found[case].attrs["agent"] = AgentSession._current.process.pid

        def import_from(case: str) -> None:
            patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (folders / case, HERE, REPOSITORY))))

        for name, value in (apart_in(folders) | {"A_MODULE": "named_alike"}).items():
            patch.setenv(name, value)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        import_from("old agent")
        tell("alone", gpus=1)
        patch.setenv("PATH", str(folders))
        for name, value in FOREIGN.items():
            patch.setenv(name, value)
        for interface in psutil.net_if_addrs():
            patch.setenv("GLOO_SOCKET_IFNAME", interface)
        tell("old agent")
        import_from("new agent")
        patch.setenv("PYTHONHASHSEED", "3")
        patch.setenv("OMP_NUM_THREADS", "3")
        tell("new agent")
        works()
    return found


def test_what_is_read_as_a_process_starts_takes_a_new_agent(cases):
    agents = [cases[case].attrs["agent"] for case in VISIBLE]
    assert agents[0] == agents[1] != agents[2]


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "PYTHONPATH", "OMP_NUM_THREADS"])
def test_each_of_these_alone_takes_a_new_agent(monkeypatch, name):
    before = agent_fingerprint()
    monkeypatch.setenv(name, "4")
    assert agent_fingerprint() != before


@CASES
def test_another_launchers_variables_do_not_leak_in(cases, case):
    """Neither those that come up between two launches, nor those that the agent was started under."""
    for rank, environment in cases[case]["environment"].items():
        assert not {name for name, value in FOREIGN.items() if environment.get(name) == value}
        assert not [name for name in environment if name.startswith(("SLURM_", "PET_", "OMPI_"))]
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        assert expected.items() <= environment.items()


@pytest.mark.parametrize("case", VISIBLE)
def test_processes_that_stand_in_for_gpus_see_none(cases, case):
    """Whatever the kernel was given, by UUID or MIG id; which GPUs a run on GPUs sees, test_reservation.py shows."""
    for environment in cases[case]["environment"]:
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize("case", THREADS)
def test_threads_are_set_and_recorded(cases, case):
    """The kernel's own number, or each rank's share of the cores."""
    rows = cases[case]
    assert set(rows["threads"]) == {THREADS[case]}
    assert {environment["OMP_NUM_THREADS"] for environment in rows["environment"]} == {str(THREADS[case])}
    assert rows.attrs["status"]["omp_num_threads"] == THREADS[case]


@CASES
def test_this_python_runs_the_workers(cases, case):
    """Whatever else PATH leads to."""
    assert set(cases[case]["executable"]) == {sys.executable}
    python = os.path.realpath(sys.executable)
    assert {path for family in cases[case]["family"] for path in family} == {python}


def test_what_python_reads_as_it_starts_reaches_the_workers(cases):
    environment = os.environ | {"PYTHONHASHSEED": "3"}
    command = [sys.executable, "-c", "print(hash('labkit'))"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert set(cases["new agent"]["hash"]) == {done.stdout.strip()}


@CASES
def test_every_socket_is_loopbacks(cases, case):
    """Those of the workers, the forkserver and the agent, whatever interface the kernel's environment names."""
    for sockets in cases[case]["sockets"]:
        assert set(sockets) == {"127.0.0.1"}


@pytest.mark.parametrize("case", VISIBLE)
def test_workers_stand_where_the_kernel_does(cases, folders, case):
    assert set(cases[case]["cwd"]) == {str(folders / case)}


@pytest.mark.quick
def test_a_folder_that_was_removed_under_the_kernel(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    works()


@CASES
def test_modules_come_from_the_kernels_path(cases, folders, case):
    """As it is at the launch: a folder that is added comes in, one that is taken out is gone."""
    assert set(cases[case]["module"]) == {case}
    for environment in cases[case]["environment"]:
        assert environment["PYTHONPATH"] == os.pathsep.join(map(str, (REPOSITORY, folders / case, HERE)))
