"""What goes wrong on two nodes: the culprit with its node, in time, nothing left, and the next launch works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faults_plan import Faults
from launches import HERE, soon, the_run
from two_nodes import SLURM_FORGETS_S

from labkit import launch
from labkit.cluster import lending
from labkit.engine import processes
from labkit.engine.errors import (
    ClusterError,
    GroundLost,
    JobEnded,
    LauncherLost,
    RunError,
    WorkerDied,
    WorkerHung,
    WorkerRaised,
)
from labkit.engine.run import Run

MOST_SECONDS = 30.0  # to an error, on a loaded machine


def failed(kind: type[RunError], plan: Faults, **options) -> RunError:
    """Return the error of a launch on two nodes that fails soon; nothing of it may be left on either node."""
    begun = time.monotonic()
    with pytest.raises(RunError) as caught:
        launch(plan, nodes=2, **options)
    assert time.monotonic() - begun < MOST_SECONDS + START_SECONDS
    assert type(caught.value) is kind, caught.value
    assert not processes.members(caught.value.run)
    return caught.value


START_SECONDS = 30.0


def works_again() -> None:
    run = launch(Faults(), nodes=2)
    assert run.status["state"] == "finished" and run.status["processes_left"] == 0


def when_it_measures(folder: Path, action) -> threading.Thread:
    """Do something once the run in this folder has rows of all four ranks."""

    def measures():
        plans = sorted(folder.glob("runs/*/plan.json"))
        return plans and Run(plans[-1].parent).tally()["rows"] >= 4  # a run may have no node.json yet

    def wait():
        soon(measures, 100.0)  # stations start slowly on a loaded machine
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_worker_that_raises_is_named_with_its_node(allocation):
    error = failed(WorkerRaised, Faults(faults=("none", "raise"), rank=3))
    assert (error.rank, error.node, error.point) == (3, 1, 1)
    assert "rank 3 (node 1, n2) raised ValueError: this rank raises on purpose" in error.sentence
    assert set(error.run.rows["point"]) == {0, 1}
    works_again()


def test_a_worker_that_is_killed_is_named_with_its_node(allocation):
    error = failed(WorkerDied, Faults(faults=("kill",), rank=2))
    assert (error.rank, error.node) == (2, 1)
    assert "rank 2 (node 1, n2) was killed by SIGKILL" in error.sentence
    works_again()


def test_a_worker_that_hangs_is_named_with_its_node_and_line(allocation):
    error = failed(WorkerHung, Faults(faults=("hang",), rank=3), patience_s=2.0)
    assert (error.rank, error.node) == (3, 1)
    assert "rank 3 is at faults_worker.py" in error.sentence.replace("is in", "is at")
    works_again()


def test_a_station_that_is_killed_is_told_with_its_node(cluster, allocation, tmp_path):
    killing = when_it_measures(tmp_path, lambda: cluster.stations("n2")[0].kill())
    error = failed(LauncherLost, Faults(faults=("sleep",)))
    killing.join()
    assert error.node == 1 and "node 1 (n2) has lost its station" in error.sentence
    works_again()


def test_a_job_that_is_cancelled_is_told_and_its_rows_are_kept(cluster, login, allocation, tmp_path, monkeypatch):
    cancelling = when_it_measures(tmp_path, lambda: cluster.command("scancel", allocation))
    error = failed(JobEnded, Faults(faults=("sleep",)))
    cancelling.join()
    assert f"job {allocation} was cancelled from outside (scancel)" in error.sentence
    assert len(error.run.rows) == 4
    with pytest.raises(ClusterError, match=f"job {allocation} was cancelled"):
        launch(Faults(), nodes=2)
    monkeypatch.setenv("SLURM_JOB_ID", cluster.allocate(2))
    works_again()


def test_a_job_that_is_preempted_is_told(cluster, allocation, tmp_path):
    def preempt():
        cluster.command(
            "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 60"
        )

    preempting = when_it_measures(tmp_path, preempt)
    error = failed(JobEnded, Faults(faults=("sleep",)))
    preempting.join()
    assert f"job {allocation} was preempted" in error.sentence


def test_a_job_that_reaches_its_time_limit_is_told(cluster, allocation, tmp_path):
    def soon_over():
        cluster.command("scontrol", "update", f"JobId={allocation}", "EndTime=now+1")

    ending = when_it_measures(tmp_path, soon_over)
    error = failed(JobEnded, Faults(faults=("sleep",)))
    ending.join()
    assert "reached its time limit of" in error.sentence and "`time_minutes`" in error.sentence
    assert len(error.run.rows) == 4


def test_slurmd_may_be_killed_under_a_run_but_a_new_step_needs_it(cluster, allocation, tmp_path):
    """Slurm's steps outlive their slurmd: the run goes on. Stations that start meanwhile are refused by srun."""

    def kill_slurmd():
        cluster.daemons["n2"].kill()
        cluster.daemons["n2"].wait()

    killing = when_it_measures(tmp_path, kill_slurmd)
    try:
        run = launch(Faults(faults=("visible",) * 4), nodes=2)
        killing.join()
        assert run.status["state"] == "finished"
        lending.leave()
        with pytest.raises(ClusterError, match=r"no station started on node\(s\).*(connection|node)"):
            launch(Faults(), nodes=2)
    finally:
        cluster.start_node("n2")
    soon(lambda: "n2" in cluster.command("sinfo", "-h", "-N", "-t", "alloc,mix", "-o", "%N"))
    works_again()


def test_a_kernel_that_is_killed_leaves_nothing_on_either_node(cluster, allocation, tmp_path):
    lending.leave()
    script = "from faults_plan import Faults; from labkit import launch; launch(Faults(faults=('sleep',)), nodes=2)"
    environment = os.environ | {"LABKIT_PROGRESS": "0"}
    kernel = subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=HERE)
    run = the_run(tmp_path, rows=4)
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    soon(lambda: not processes.members(run))
    soon(lambda: not cluster.steps(), seconds=SLURM_FORGETS_S)
    assert not list((tmp_path / "runs").glob(".nodes-*"))
    works_again()


def test_a_stall_of_the_link_is_outlived(cluster, allocation, tmp_path):
    if not cluster.linked:
        pytest.skip("this machine gives no network namespaces: the nodes have no link to cut")

    def stall():
        cluster.cut()
        time.sleep(4)
        cluster.cut(False)

    stalling = when_it_measures(tmp_path, stall)
    run = launch(Faults(faults=("visible",) * 20), nodes=2)
    stalling.join()
    assert run.status["state"] == "finished" and run.tally()["points"] == 20


def test_a_link_that_stays_cut_ends_the_run(cluster, allocation, tmp_path):
    if not cluster.linked:
        pytest.skip("this machine gives no network namespaces: the nodes have no link to cut")
    cutting = when_it_measures(tmp_path, cluster.cut)
    try:
        begun = time.monotonic()
        with pytest.raises(RunError) as caught:
            launch(Faults(faults=("visible",) * 200), nodes=2, patience_s=3.0)
        assert isinstance(caught.value, WorkerHung | LauncherLost | WorkerRaised), caught.value
        assert time.monotonic() - begun < 2 * MOST_SECONDS
    finally:
        cutting.join()
        cluster.cut(False)
    soon(lambda: not processes.members(caught.value.run), 60)
    works_again()


def test_a_full_disk_is_told(cluster, allocation, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        monkeypatch.setenv("LABKIT_RUNS", str(small / "runs"))
        with pytest.raises((RunError, OSError), match=r"cannot be written|No space left"):
            launch(Faults(faults=("none",) * 400), nodes=2)
        lending.leave()
    finally:
        monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
        subprocess.run(["umount", "--lazy", str(small)], check=True)
    works_again()


def test_a_run_folder_that_is_removed_is_told(allocation, tmp_path):
    def remove():
        the_run(tmp_path, rows=4).folder.rename(tmp_path / "elsewhere")

    removing = when_it_measures(tmp_path, remove)
    error = failed(GroundLost, Faults(faults=("sleep",)))
    removing.join()
    assert "was removed, or moved elsewhere" in error.sentence


def test_nodes_with_different_versions_are_refused(login, allocation, tmp_path):
    other = tmp_path / "other" / "torch-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    line = f"[ $SLURMD_NODENAME = n2 ] && export PYTHONPATH={other.parent}:$PYTHONPATH"
    login.write_text(login.read_text() + f"\nsetup = ['''{line}''']\n")
    with pytest.raises(ClusterError, match=r"same version of torch: .* on n1, 1\.0 on n2"):
        launch(Faults(), nodes=2)


def test_an_interface_that_a_node_lacks_is_told_with_those_it_has(login, allocation):
    login.write_text(login.read_text() + '\ninterface = "ib0"\n')
    with pytest.raises(ClusterError, match=r"node 0 \(n1\): it has no interface 'ib0'.*it has lo"):
        launch(Faults(), nodes=2)
