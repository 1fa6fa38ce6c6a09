"""The launcher with real workers, real signals and real interrupts: gloo on the CPU.

Every failed launch must leave no process, and the tests after it in the same process show that the next launch works.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from faults_plan import Faults, Unimportable

from labkit import node
from labkit.engine import launch as launch_module
from labkit.engine import watch
from labkit.engine.errors import LauncherLost, NotEnoughGpus, RunError, WorkerDied, WorkerHung, WorkerRaised
from labkit.engine.launch import environment, launch
from labkit.engine.run import Run

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs go to the test's own folder, and workers find the lab of this folder."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")


def failed(kind: type[RunError], *faults: str, plan: type[Faults] = Faults, **options) -> RunError:
    """Give the error of a launch that fails; nothing of it may be left."""
    with pytest.raises(kind) as caught:
        launch(plan(faults=faults), **options)
    assert type(caught.value) is kind
    assert not watch.members(caught.value.run)
    return caught.value


def line_of(text: str, file: str = "faults_worker.py") -> int:
    """The number of the only line of the lab that holds the text."""
    lines = (HERE / file).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def soon(found, seconds: float = 30.0):
    """Wait until `found()` gives something true, and give that."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline, f"nothing in {seconds} s"
        time.sleep(0.05)
    return result


def the_run(folder: Path, rows: int) -> Run:
    """Wait for the only run in the folder to have so many rows."""

    def found():
        runs = [Run(plan.parent) for plan in folder.glob("runs/*/plan.json")]
        return runs[0] if runs and runs[0].node_file.exists() and len(runs[0].rows) >= rows else None

    return soon(found)


def test_points_are_measured_in_one_launch():
    run = launch(Faults(faults=("none", "none"), seeds=(0, 1)))
    rows = run.rows
    assert rows["point"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows["rank"].tolist() == [0, 1] * 4
    assert rows["seed"].tolist() == [0] * 4 + [1] * 4
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("rank")["pid"].nunique().tolist() == [1, 1], "the same two workers measure every point"
    assert run.status["state"] == "finished"
    assert run.status["launches"] == 1
    assert run.status["omp_num_threads"] == max(1, node.here().cores // 2)
    assert 0 < run.status["startup_seconds"] < run.seconds
    assert not watch.members(run)


def test_a_child_that_a_worker_left_is_ended():
    run = launch(Faults(faults=("grandchild",)))
    assert run.status["state"] == "finished"
    assert not watch.members(run)


def test_out_of_memory_is_a_row_and_the_sweep_goes_on():
    run = launch(Faults(faults=("none", "oom", "none")))
    said = run.rows.groupby("point")["status"].agg(set).tolist()
    assert said == [{"ok"}, {"ok", "out of memory"}, {"ok"}]
    assert run.status["launches"] == 1
    assert (run.rows["status"] == "out of memory").sum() == 2
    assert "2 × out of memory" in repr(run)


def test_out_of_memory_on_one_rank_costs_a_restart():
    run = launch(Faults(faults=("none", "oom alone", "none")))
    rows = run.rows
    bad = rows[rows["status"] != "ok"]
    assert bad[["point", "rank", "status"]].values.tolist() == [[1, 1, "out of memory"]]
    assert rows["point"].value_counts().to_dict() == {0: 2, 1: 3, 2: 2}
    assert rows.groupby("rank")["pid"].nunique().tolist() == [2, 2], "fresh workers"
    assert run.status["launches"] == 2
    assert run.status["state"] == "finished"
    assert "fresh ones took up the rest" in repr(run)


def test_the_rank_that_raised_is_blamed_and_not_its_victim():
    error = failed(WorkerRaised, "none", "raise", "none")
    assert error.sentence == "rank 1 raised ValueError: this rank raises on purpose at point 1 (seed=0, fault=raise)"
    assert (error.rank, error.gpu, error.point) == (1, None, 1)
    place = f'faults_worker.py", line {line_of("this rank raises on purpose")}, in fail'
    assert place in error.detail
    assert "Connection closed by peer" not in str(error)
    assert error.run.rows["point"].tolist() == [0, 0, 1, 1]
    assert "4 rows were measured before that and kept" in str(error)
    assert error.run.status["state"] == error.sentence
    assert place in error.run.log(1)
    assert error._render_traceback_()[0].startswith("WorkerRaised: rank 1 raised ValueError")


def test_a_module_that_cannot_be_imported():
    error = failed(WorkerRaised, "none", plan=Unimportable)
    assert error.sentence.endswith("No module named 'a_library_that_nobody_has' before the first point")
    place = line_of("import a_library", "faults_unimportable.py")
    assert f'faults_unimportable.py", line {place}' in error.detail
    assert error.point is None


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


def test_a_run_that_outlasts_its_limit():
    begun = time.monotonic()
    error = failed(WorkerHung, "sleep", limit_s=5)
    assert time.monotonic() - begun < 15
    assert error.sentence.startswith("the run outlasted its time limit at point 0")
    place = line_of("every rank sleeps")
    assert error.sentence.count(f"is at faults_worker.py:{place} in measure") == 2


def test_a_killed_torchrun_takes_its_workers_along(tmp_path):
    def kill():
        run = the_run(tmp_path, rows=2)
        (torchrun,) = [process for process in watch.members(run) if "torch.distributed.run" in process.cmdline()]
        torchrun.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    error = failed(LauncherLost, "sleep")
    killer.join()
    assert "torchrun ended with status -9" in error.sentence
    assert len(error.run.rows) == 2


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


def kernel(*faults: str) -> subprocess.Popen:
    command = [sys.executable, str(HERE / "a_kernel.py"), *faults]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_the_run_and_keeps_its_rows(tmp_path, times):
    process = kernel("none", "sleep")
    the_run(tmp_path, rows=4)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # the second one comes while the first is being handled
    out, _ = process.communicate(timeout=15)
    told = json.loads(out)
    assert told["interrupt"]
    assert told["error"] == "Interrupted"
    assert (told["rows"], told["state"], told["left"]) == (4, "interrupted", [])
    assert "4 rows were measured before that" in told["text"]


def test_an_interrupt_while_workers_start(tmp_path):
    process = kernel("none")
    soon(lambda: any(watch.members(Run(plan.parent)) for plan in tmp_path.glob("runs/*/plan.json")))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=15)
    told = json.loads(out)
    assert (told["error"], told["rows"], told["left"]) == ("Interrupted", 0, [])


def test_nothing_outlives_a_killed_kernel(tmp_path):
    process = kernel("sleep")
    run = the_run(tmp_path, rows=2)
    assert len(watch.members(run)) == 3, "torchrun and two workers"
    process.kill()
    soon(lambda: not watch.members(run), seconds=5)
    process.communicate()


def test_nothing_outlives_a_kernel_killed_while_workers_start(tmp_path):
    process = kernel("sleep")
    folder = soon(lambda: next((plan.parent for plan in tmp_path.glob("runs/*/plan.json")), None))
    soon(lambda: watch.members(Run(folder)))
    process.kill()
    soon(lambda: not watch.members(Run(folder)), seconds=15)  # torchrun first has to start them
    process.communicate()


def test_other_launchers_variables_do_not_reach_the_workers(tmp_path, monkeypatch):
    foreign = {"RANK": "7", "MASTER_ADDR": "192.0.2.1", "SLURM_PROCID": "3", "PET_NNODES": "2", "TORCHELASTIC_RUN_ID": "x"}
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    run = launch(Faults(faults=("none",)))
    assert len(run.rows) == 2
    assert not set(environment(run, 1)) & set(foreign)


def test_a_plan_for_more_gpus_than_there_are_starts_nothing(tmp_path):
    shown = len(node.here().gpus)
    with pytest.raises(NotEnoughGpus, match=rf"wants {shown + 1} GPU\(s\), this node shows {shown}; use replay"):
        launch(Faults(device="cuda", gpus=shown + 1))
    assert not (tmp_path / "runs").exists()


def test_processes_of_other_runs_are_left_alone(tmp_path):
    """A process that carries the mark of another run, and one without, both live on."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    others = [
        subprocess.Popen(sleeper, env=os.environ | {watch.MARK: str(tmp_path / "another run")}),
        subprocess.Popen(sleeper),
    ]
    try:
        run = launch(Faults())
        watch.end(run)
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_end_kills_what_does_not_listen(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0.5)
    run = Run.create(Faults(), node.here())
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", deaf], env=os.environ | {watch.MARK: str(run.folder)}, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    watch.end(run)
    assert not psutil.pid_exists(process.pid) or process.wait() is not None
    assert not watch.members(run)
    process.stdout.close()


def test_an_interrupt_waits_for_what_must_not_be_interrupted():
    done = []
    with pytest.raises(KeyboardInterrupt), watch.uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_kernel_shares_its_cores_among_the_workers():
    assert launch_module.omp_num_threads(Faults(gpus=8), node.here()) == max(1, node.here().cores // 8)
