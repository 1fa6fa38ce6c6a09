"""The launcher with real workers and real faults in them: gloo on the CPU.

Every failed launch must leave no process, and the tests after it in the same process show that the next launch works.
"""

from __future__ import annotations

import dataclasses
import threading

import pytest
from faults_plan import Faults
from faults_worker import OF_THE_DRIVER
from launches import failed, line_of

from labkit import node
from labkit.engine import processes
from labkit.engine.errors import NotEnoughGpus, PlanError, WorkerDied, WorkerHung, WorkerRaised
from labkit.engine.launches import omp_num_threads, worker_environment
from labkit.engine.run import Run
from labkit.launching import launch


def test_points_are_measured_in_one_launch():
    run = launch(Faults(faults=("none", "grandchild"), seeds=(0, 1)))
    rows = run.rows
    assert rows["point"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows["rank"].tolist() == [0, 1] * 4
    assert rows["seed"].tolist() == [0] * 4 + [1] * 4
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("rank")["pid"].nunique().tolist() == [1, 1], "the same two workers measure every point"
    assert run.status["state"] == "finished"
    assert run.status["launches"] == 1
    assert run.status["omp_num_threads"] == max(1, int(node.here().usable_cores // 2))
    assert 0 < run.status["startup_seconds"] < run.seconds
    assert not processes.members(run), "nor a child that a worker left"


def test_a_worker_runs_no_lessons_front_door():
    """Charts, stories, coursework and the launcher stay in the kernel: a worker would take 0.1 s more to start."""
    loaded = launch(Faults(faults=("a lesson's worker",))).rows["loaded"].dropna().tolist()
    assert loaded == [[], []]


def test_out_of_memory_is_a_row_and_the_sweep_goes_on():
    run = launch(Faults(faults=("none", "oom", "none")))
    said = run.rows.groupby("point")["status"].agg(set).tolist()
    assert said == [{"ok"}, {"ok", "out of memory"}, {"ok"}]
    assert run.status["launches"] == 1
    assert (run.rows["status"] == "out of memory").sum() == 2
    assert "2 × out of memory" in repr(run)


@pytest.mark.parametrize("said", OF_THE_DRIVER)
def test_memory_that_the_driver_refuses_is_a_row_and_fresh_workers_go_on(said):
    """Without torch's own error, as while a CUDA graph is captured."""
    run = launch(Faults(faults=("none", said, "none")))
    assert run.rows.groupby("point")["status"].agg(set).tolist() == [{"ok"}, {"ok", "out of memory"}, {"ok"}]
    assert run.rows.groupby("point")["pid"].first().nunique() == 2
    assert run.status["launches"] == 2


def test_what_cannot_fit_is_a_row_and_is_not_tried():
    run = launch(Faults(faults=("none", "too large", "none")))
    assert run.rows.groupby("point")["status"].agg(set).tolist() == [{"ok"}, {"does not fit"}, {"ok"}]
    told = run.rows[run.rows["status"] == "does not fit"]
    assert told["pid"].isna().all() and (told["needed_bytes"] == 1e18).all() and (told["free_bytes"] > 1e8).all()


def test_the_rank_that_raised_is_blamed_and_not_its_victim():
    error = failed(WorkerRaised, "none", "raise", "none")
    assert error.sentence == "rank 1 raised ValueError: this rank raises on purpose at point 1 (seed=0, fault=raise)"
    assert (error.rank, error.gpu, error.point) == (1, None, 1)
    place = f'faults_worker.py", line {line_of("this rank raises on purpose")}, in fail'
    assert place in error.detail
    assert "Connection closed by peer" not in str(error)
    assert error.run.rows["point"].tolist() == [0, 0, 1, 1]
    assert "4 rows were measured before that and kept" in str(error)
    assert (error.run.status["state"], error.run.status["why"]) == ("failed", error.sentence)
    assert place in error.run.log(1)
    assert error._render_traceback_()[0].startswith("WorkerRaised: rank 1 raised ValueError")


def test_a_killed_worker_costs_one_restart_and_then_an_error():
    error = failed(WorkerDied, "none", "kill", "none")
    assert error.sentence.startswith("rank 1 was killed by SIGKILL (")
    assert error.sentence.endswith("at point 1 (seed=0, fault=kill)")
    assert (error.rank, error.point) == (1, 1)
    assert error.run.status["launches"] == 2
    assert error.run.rows["point"].value_counts().to_dict() == {0: 2, 1: 2, 2: 2}


def test_a_second_death_ends_the_run_at_once():
    error = failed(WorkerDied, "kill", "exit 3", "none")
    assert error.sentence.startswith("rank 1 ended with exit status 3 before it had finished at point 1")
    assert "; before that, rank 1 was killed by SIGKILL" in error.sentence
    assert error.run.status["launches"] == 2
    assert set(error.run.rows["point"]) == {0, 1}


def test_a_worker_that_exits_with_status_0_has_died():
    error = failed(WorkerDied, "exit 0")
    assert error.sentence.startswith("rank 1 ended before it had finished, without an error status at point 0")
    assert error.rank == 1
    assert error.run.status["launches"] == 1, "there was nothing left to measure"


def test_a_hang_says_where_each_rank_stands():
    error = failed(WorkerHung, "none", "hang", "none", patience_s=2)
    waits, hangs = line_of("dist.all_reduce"), line_of("it never joins")
    assert error.sentence == (
        "no rank made progress for 2 s at point 1 (seed=0, fault=hang): "
        f"rank 0 waits in all_reduce (faults_worker.py:{waits}); rank 1 is at faults_worker.py:{hangs} in fail"
    )
    assert (error.rank, error.point) == (1, 1)
    assert f"line {hangs} in fail" in error.detail
    assert len(error.run.rows) == 4


@pytest.mark.parametrize("name", ["patience_s", "limit_s"])
@pytest.mark.parametrize("seconds", ["x", None, float("nan"), -1, True])
def test_a_limit_that_is_no_number_of_seconds(tmp_path, name, seconds):
    with pytest.raises(PlanError) as caught:
        launch(Faults(), **{name: seconds})
    assert str(caught.value) == f"{name}={seconds!r}: give a number of seconds, such as 60"
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_run_that_outlasts_its_limit():
    launch(Faults())  # so that the agent is there: its start takes longer than the limit where the machine is busy
    error = failed(WorkerHung, "sleep", limit_s=2, patience_s=10)  # by the same clock: a late limit comes second
    assert error.sentence.startswith("the run outlasted its time limit ")
    assert "rank 0 " in error.sentence
    assert "rank 1 " in error.sentence


def test_two_launches_at_the_same_time():
    runs = []
    threads = [threading.Thread(target=lambda: runs.append(launch(Faults(faults=("none",) * 3)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.status["state"] for run in runs] == ["finished"] * 2
    assert [len(run.rows) for run in runs] == [6, 6]
    assert runs[0].folder != runs[1].folder


def test_other_launchers_variables_do_not_reach_the_workers(monkeypatch):
    foreign = {"RANK": "7", "MASTER_ADDR": "192.0.2.1", "SLURM_PROCID": "3", "PET_NNODES": "2", "TORCHELASTIC_X": "y"}
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    run = launch(Faults(faults=("none",)))
    assert len(run.rows) == 2
    assert not set(worker_environment(run, 1)) & set(foreign)


def test_a_plan_for_more_gpus_than_there_are_starts_nothing(tmp_path):
    shown = len(node.here().gpus)
    with pytest.raises(NotEnoughGpus, match=rf"wants {shown + 1} GPU\(s\), this node shows {shown}; use replay"):
        launch(Faults(device="cuda", gpus=shown + 1))
    assert not (tmp_path / "runs").exists()


def test_the_kernel_shares_its_cores_among_the_workers():
    assert omp_num_threads(Faults(gpus=8), node.here()) == max(1, int(node.here().usable_cores // 8))


@pytest.mark.parametrize(
    ("cores", "quota", "nodes", "threads"),
    [(96, 2.0, 1, 1), (96, 7.65, 1, 3), (96, 1.5, 1, 1), (96, 200.0, 1, 48), (96, None, 1, 48), (96, 7.65, 2, 7)],
)
def test_the_workers_share_what_the_control_group_allows(cores, quota, nodes, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    limited = dataclasses.replace(node.here(), cores=cores, quota_cores=quota)
    assert omp_num_threads(Faults(gpus=2), limited, nodes) == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert omp_num_threads(Faults(gpus=2), limited, nodes) == 5


def test_workers_on_mig_slices_see_those_of_their_run_alone(monkeypatch):
    """Of MIG-a and MIG-b on GPU 0 and MIG-c on GPU 1, the second worker's is MIG-c, which the kernel sees third."""
    slices = tuple(node.Gpu(index, "NVIDIA A100 MIG 3g.40gb", uuid) for index, uuid in enumerate(["MIG-a", "MIG-c"]))
    with_slices = dataclasses.replace(node.here(), gpus=slices)
    monkeypatch.setattr(node, "here", lambda: with_slices)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c")
    run = Run.create(Faults(device="cuda", gpus=2), with_slices)
    assert worker_environment(run, 1)["CUDA_VISIBLE_DEVICES"] == "MIG-a,MIG-c"
