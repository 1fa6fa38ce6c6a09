"""Launches on two network namespaces of this machine: no Slurm, a real link, nothing left however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings

import psutil
import pytest
from faults_plan import Faults
from launches import soon

from labkit import launch, launch_or_replay
from labkit.cluster import namespaces, session_cache
from labkit.cluster.session import NodesSession
from labkit.engine import processes
from labkit.engine.errors import ClusterError, NotStarted, PlanError, WorkerDied
from labkit.repository import REPOSITORY
from lessons import broadcast, start

pytestmark = pytest.mark.slow
LESSONS = ("start.worker",)

needs_namespaces = pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not() or "they can be made")
FORKED = ("forkserver", *(f"rank {rank}" for rank in range(4)))  # by a station, whose command they have
KERNEL = """
from labkit import launch
from lessons import start
launch(start.Hello.small(gpus=2), nodes=2)
print("launched", flush=True)
input()
"""


@pytest.fixture
def lent(elsewhere, monkeypatch):
    monkeypatch.setenv("LABKIT_CLUSTER", "namespaces")


@needs_namespaces
def test_a_plan_runs_in_two_namespaces_whose_stations_stay_warm_until_they_are_left(lent):
    run = launch(start.Hello.small(gpus=2), nodes=2)
    assert run.status["state"] == "finished" and run.status["processes_left"] == 0
    assert set(run.rows["sum_of_ranks"]) == {0 + 1 + 2 + 3} and run.node_count == 2
    assert "2 network namespaces of one machine" in run.source
    begun = stations()
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert not launch_or_replay(start.Hello.small(gpus=2), "h200x4/start/hello").recorded
    assert stations() == begun and len(begun) == 2
    session_cache.leave()
    soon(lambda: not any(each.is_running() for each in begun))


@needs_namespaces
def test_stations_in_use_are_not_ended_for_a_launch_that_they_do_not_fit(lent):
    """A worker that they do not know needs others; the run that uses these goes on to its end."""
    runs = []
    beside = threading.Thread(target=lambda: runs.append(launch(Faults(faults=("pause",) * 4), nodes=2)))
    beside.start()
    soon(lambda: (session := session_cache._Cache.session) and session.launches)
    with pytest.raises(ClusterError, match="wait for its end"):
        launch(broadcast.Sweep.small(gpus=2), nodes=2)
    beside.join(90)
    assert runs[0].status["state"] == "finished"


@needs_namespaces
def test_an_interrupt_while_stations_start_leaves_none(lent, monkeypatch):
    def interrupt(session):
        raise KeyboardInterrupt

    session_cache.leave()
    monkeypatch.setattr(NodesSession, "wait_for_stations", interrupt)
    with pytest.raises(NotStarted, match="nothing was started"):
        launch(Faults(), nodes=2)
    soon(lambda: not stations())


@needs_namespaces
def test_a_killed_worker_is_named_with_its_namespace(lent):
    with pytest.raises(WorkerDied, match=r"rank 3 \(node 1, namespace1\) was killed by SIGKILL") as caught:
        launch(Faults(faults=("kill",), rank=3), nodes=2)
    assert not processes.members(caught.value.run)


@needs_namespaces
def test_a_killed_kernel_leaves_no_station_and_no_link(lent, tmp_path):
    program = tmp_path / "kernel.py"
    program.write_text(KERNEL)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    kernel = subprocess.Popen(
        [sys.executable, str(program)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert kernel.stdout is not None and kernel.stdout.readline() == "launched\n"
    begun = stations(kernel.pid)
    assert len(begun) == 2
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    soon(lambda: not any(each.is_running() for each in begun))
    assert namespaces.LENT_LINK not in psutil.net_if_stats()


def test_other_numbers_of_nodes_are_refused(lent):
    with pytest.raises(ClusterError, match="lent as two"):
        launch(start.Hello.small(gpus=2), nodes=3)


def test_a_plan_of_gpus_is_refused_in_namespaces(lent):
    plan = start.Hello.small(gpus=2)
    object.__setattr__(plan, "device", "cuda")
    with pytest.raises(PlanError, match="would use the same GPUs"):
        launch(plan, nodes=2)


def test_without_namespaces_the_recorded_run_stands_in_and_the_reason_is_said(elsewhere, monkeypatch):
    monkeypatch.setattr(namespaces, "why_not", lambda: "no iproute2 here")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.warns(UserWarning, match=r"no iproute2 here\. The recorded run stands in: h200x4/start/hello"):
        run = launch_or_replay(start.Hello.small(gpus=2), "h200x4/start/hello")
    assert run.recorded


def test_without_namespaces_a_launch_says_why(lent, monkeypatch):
    session_cache.leave()
    monkeypatch.setattr(namespaces, "why_not", lambda: "no iproute2 here")
    with pytest.raises(ClusterError, match=r"no iproute2 here\. Launch on a cluster, or replay"):
        launch(start.Hello.small(gpus=2), nodes=2)


def test_a_missing_program_is_the_reason(monkeypatch):
    monkeypatch.setattr(namespaces.shutil, "which", lambda program, path: None if program == "tc" else program)
    assert "need iproute2" in namespaces.why_not.__wrapped__()


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(namespaces.shutil, "which", lambda program, path: program)
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    assert "only root" in namespaces.why_not.__wrapped__()


def stations(kernel: int | None = None) -> list[psutil.Process]:
    """Return the stations of a kernel (this process): not the script that starts them, whose arguments name them."""
    below = [process for process in psutil.Process(kernel).children(recursive=True) if process.name() not in FORKED]
    return [process for process in below if process.cmdline()[2:4] == ["-m", "labkit.cluster.station"]]
