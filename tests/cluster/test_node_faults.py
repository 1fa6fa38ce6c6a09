"""What goes wrong on two nodes: the culprit with its node, in time, nothing left, and the next launch works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults_plan import Faults
from launches import HERE, soon, the_run
from node_faults import when_it_measures, works_again
from two_nodes import SLURM_FORGETS_S

from labkit import launch
from labkit.cluster import session_cache
from labkit.engine import processes
from labkit.engine.errors import ClusterError, JobEnded, LauncherLost, WorkerDied, WorkerHung, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # some start stations twice, slowly on a loaded machine


def test_a_kernel_that_is_killed_leaves_nothing_on_either_node(cluster, allocation, tmp_path, record_property):
    """The next test's launch starts stations anew, and works."""
    script = "from faults_plan import Faults; from labkit import launch; launch(Faults(faults=('sleep',)), nodes=2)"
    environment = os.environ | {"LABKIT_PROGRESS": "0"}
    kernel = subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=HERE)
    run = the_run(tmp_path, rows=4, seconds=SLURM_FORGETS_S)
    killed = time.monotonic()
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    soon(lambda: not processes.members(run), SLURM_FORGETS_S)
    record_property("seconds", round(time.monotonic() - killed, 2))
    soon(lambda: not cluster.steps(), seconds=SLURM_FORGETS_S)
    assert not list((tmp_path / "runs").glob(".nodes-*"))


def test_a_worker_that_raises_is_named_with_its_node(allocation, failed):
    error = failed(WorkerRaised, Faults(faults=("none", "raise"), rank=3))
    assert (error.rank, error.node, error.point) == (3, 1, 1)
    assert "rank 3 (node 1, n2) raised ValueError: this rank raises on purpose" in error.sentence
    assert set(error.run.rows["point"]) == {0, 1}


def test_a_worker_that_is_killed_is_named_with_its_node_and_costs_one_restart(allocation, failed):
    error = failed(WorkerDied, Faults(faults=("none", "kill", "none"), rank=3))
    assert (error.rank, error.node) == (3, 1)
    assert "rank 3 (node 1, n2) was killed by SIGKILL" in error.sentence
    assert set(error.run.rows["point"]) == {0, 1, 2} and error.run.status["launches"] == 2


def test_a_worker_that_hangs_is_named_with_its_node_and_line(allocation, failed):
    error = failed(WorkerHung, Faults(faults=("hang",), rank=3), patience_s=2.0)
    assert (error.rank, error.node) == (3, 1)
    assert "rank 3 is at faults_worker.py" in error.sentence.replace("is in", "is at")
    works_again()


def test_a_station_that_is_killed_is_told_with_its_node_and_the_next_one_removes_its_folder(
    cluster, allocation, tmp_path, failed
):
    folders = []

    def kill():
        station = cluster.stations("n2")[0]
        opened = (os.path.realpath(file) for file in Path(f"/proc/{station.pid}/fd").iterdir())
        folders.extend(path for path in opened if "labkit-station-" in path)
        station.kill()

    error = failed(LauncherLost, Faults(faults=("sleep",)), when_it_measures(tmp_path, kill))
    assert error.node == 1 and "node 1 (n2) has lost its station" in error.sentence
    works_again()
    assert folders and not any(map(os.path.exists, folders))


def test_a_job_that_is_cancelled_is_told_and_its_rows_are_kept(cluster, allocation, tmp_path, monkeypatch, failed):
    cancelling = when_it_measures(tmp_path, lambda: cluster.command("scancel", allocation))
    error = failed(JobEnded, Faults(faults=("sleep",)), cancelling)
    assert f"job {allocation} was cancelled from outside (scancel)" in error.sentence
    assert len(error.run.rows) == 4
    with pytest.raises(ClusterError, match=f"job {allocation} was cancelled"):
        launch(Faults(), nodes=2)
    monkeypatch.setenv("SLURM_JOB_ID", cluster.allocate(2))
    works_again()


def test_a_job_that_is_preempted_is_told(cluster, allocation, tmp_path, failed):
    """A job of a partition that goes first takes both nodes."""
    urgent = ["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 30"]
    preempting = when_it_measures(tmp_path, lambda: cluster.command(*urgent))
    error = failed(JobEnded, Faults(faults=("sleep",)), preempting)
    assert f"job {allocation} was preempted" in error.sentence


def test_a_job_that_reaches_its_time_limit_is_told(cluster, allocation, tmp_path, failed):
    def soon_over():
        cluster.command("scontrol", "update", f"JobId={allocation}", "EndTime=now+1")

    ending = when_it_measures(tmp_path, soon_over)
    error = failed(JobEnded, Faults(faults=("sleep",)), ending)
    assert "reached its time limit of" in error.sentence and "`--time`" in error.sentence
    assert len(error.run.rows) == 4


def test_a_job_that_is_requeued_is_told_and_its_rows_are_kept(cluster, allocation, tmp_path, monkeypatch, failed):
    """A batch job, as a Jupyter job is one: its kernel has no stations of an earlier test's job."""
    session_cache.leave()
    batch = ["sbatch", "--parsable", "--requeue", "--nodes=2", "--partition=lab", "--output=/dev/null"]
    number = cluster.command(*batch, "--wrap=sleep 600")
    try:
        soon(lambda: cluster.command("squeue", "-h", "-j", number, "-o", "%T") == "RUNNING", SLURM_FORGETS_S)
        monkeypatch.setenv("SLURM_JOB_ID", number)
        requeueing = when_it_measures(tmp_path, lambda: cluster.command("scontrol", "requeue", number))
        error = failed(JobEnded, Faults(faults=("sleep",)), requeueing)
    finally:
        cluster.command("scancel", "--quiet", number)
    assert f"job {number} was put back into the queue, while the run went on" in error.sentence
    assert len(error.run.rows) == 4


def test_slurmd_may_be_killed_under_a_run_but_a_new_step_needs_it(cluster, allocation, tmp_path):
    """Slurm's steps outlive their slurmd: the run goes on. Stations that start meanwhile are refused by srun."""

    def kill_slurmd():
        cluster.daemons["n2"].kill()
        cluster.daemons["n2"].wait()

    killing = when_it_measures(tmp_path, kill_slurmd)
    try:
        run = launch(Faults(faults=("visible",) * 4), nodes=2)
        killing.finish()
        assert run.status["state"] == "finished"
        session_cache.leave()
        with pytest.raises(ClusterError, match=r"no station started on node\(s\).*(connection|node)"):
            launch(Faults(), nodes=2)
    finally:
        cluster.start_node("n2")
    soon(lambda: "n2" in cluster.command("sinfo", "-h", "-N", "-t", "alloc,mix", "-o", "%N"), SLURM_FORGETS_S)
    works_again()
