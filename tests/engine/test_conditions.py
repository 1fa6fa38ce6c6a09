"""Every launch keeps the conditions of its run, whatever becomes of it, and they cost next to nothing."""

import json
import threading
import time

import pytest
from fake_nvml import FakeNvml
from faults_plan import Faults
from launches import failed, soon

from labkit import node
from labkit.engine import progress
from labkit.engine.errors import WorkerDied, WorkerRaised
from labkit.engine.progress import LiveLine, ProgressBars
from labkit.engine.run import Run
from labkit.engine.sampler import Sampler
from labkit.launching import launch
from labkit.node.conditions import GpuState

MOST_SHARE = 0.01  # of a core, while a run goes on


@pytest.mark.slow
def test_a_run_keeps_its_conditions():
    run = launch(Faults(faults=("pause", "pause")))  # nothing is done for 1.2 s at each point
    kept = run.conditions()
    assert kept.measured
    for look in (kept.before, kept.after):
        assert [rank.rank for rank in look.ranks] == [0, 1]
        assert all(10 < rank.python_call_ns < 10_000 and rank.enqueue_us is None for rank in look.ranks)
        assert look.host.cores == run.node.cores
        assert look.gpus == ()
    assert [point["point"] for point in kept.points] == [0, 1]
    for point in kept.points:
        assert 0 < point["began_s"] < point["ended_s"] < kept.seconds
        assert point["ended_s"] - point["began_s"] > 1.1, "its ranks sleep for 1.2 s"
    assert kept.points[0]["ended_s"] <= kept.points[1]["began_s"]
    table = kept.table()
    assert len(table) >= 5, "a few looks per second"
    assert table["cpu_percent"].between(0, 100).all()
    assert table["at_s"].is_monotonic_increasing
    assert table["utilisation_percent"].isna().all(), "there is no GPU: unknown, not zero"
    assert kept.sampling["cpu_seconds"] < MOST_SHARE * kept.seconds
    assert not kept.notes


def test_without_conditions_nothing_is_measured(monkeypatch):
    monkeypatch.setenv("LABKIT_CONDITIONS", "0")
    run = launch(Faults())
    assert not run.conditions_file.exists()
    assert not run.samples_file.exists()
    assert not run.conditions().measured
    assert list(run.rows["status"].unique()) == ["ok"]


@pytest.mark.slow
def test_a_run_that_fails_keeps_what_was_seen():
    run = failed(WorkerRaised, "pause", "raise").run
    kept = run.conditions()
    assert len(kept.samples) > 2
    assert len(kept.before.ranks) == 2
    assert kept.after.host.cores, "the machine is looked at after a failure, too"
    assert not kept.after.ranks, "the rank that raised measures nothing more"
    assert "ended_s" in kept.points[0]
    assert "ended_s" not in kept.points[1]


@pytest.mark.slow
def test_a_restart_is_one_series():
    run = failed(WorkerDied, "pause", "kill", "pause").run
    kept = run.conditions()
    assert run.status["launches"] == 2
    assert [point["point"] for point in kept.points] == [0, 1, 2]
    at_s = kept.table()["at_s"]
    assert at_s.is_monotonic_increasing
    assert at_s.iloc[-1] > kept.points[2]["began_s"] > kept.points[0]["ended_s"]
    assert kept.sampling["samples"] >= len(at_s)


@pytest.fixture
def gpu_run(tmp_path):
    """A run's folder, of which only the sampler knows that it has two GPUs."""
    return Run.create(Faults(), node.here())


def test_a_gpu_that_vanishes_is_one_sentence_and_leaves_a_gap(gpu_run, monkeypatch):
    nvml = FakeNvml()
    nvml.install(monkeypatch)
    sampler = Sampler(gpu_run, [(0, "GPU-aa"), (1, "GPU-bb")])

    def samples_of(gpu):
        return [sample for sample in gpu_run.kept_conditions().samples if sample["gpu"] == gpu]

    soon(lambda: gpu_run.conditions_file.exists() and samples_of(1))
    answers = dict(nvml.answers)
    for name, answer in answers.items():
        if name.startswith("nvmlDevice") and "Handle" not in name:
            nvml.answers[name] = lambda handle, *more, answer=answer: (
                nvml.refuse() if handle == "gpu1" else answer(handle, *more)
            )
    nvml.install(monkeypatch)
    seen = len(samples_of(1))
    soon(lambda: len(samples_of(0)) > seen + 2)
    sampler.stop()
    soon(lambda: gpu_run.conditions().seconds is not None)
    kept = gpu_run.conditions()
    assert kept.before.gpus[1].memory_mib == 4096
    assert kept.after.gpus[1] == GpuState(1)
    assert len(samples_of(1)) < len(samples_of(0))
    (note,) = kept.notes
    assert note.startswith("GPU 1 does not answer from ")


def test_no_nvml_is_one_sentence(gpu_run, monkeypatch):
    FakeNvml(failing=["nvmlInit"]).install(monkeypatch)
    Sampler(gpu_run, [(0, "GPU-aa")]).stop()
    kept = gpu_run.conditions()
    assert kept.before.gpus == ()
    assert kept.before.host.cores
    (note,) = kept.notes
    assert "NVML does not answer" in note


def test_a_slice_of_a_gpu_is_one_sentence(gpu_run, monkeypatch):
    FakeNvml().install(monkeypatch)
    Sampler(gpu_run, [(1, "MIG-cc")]).stop()
    (note,) = gpu_run.conditions().notes
    assert "MIG slice" in note


def test_of_several_launches_the_first_ones_start_and_the_last_ones_end_are_kept(gpu_run):
    events = [(name, ns) for ns in (100.0, 200.0) for name in ("ready", "finished")]
    lines = [{"event": name, "at": 0.0, "conditions": {"python_call_ns": ns}} for name, ns in events]
    gpu_run.logs.mkdir(exist_ok=True)
    gpu_run.events_file(0).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    Sampler(gpu_run, []).stop()
    soon(lambda: gpu_run.conditions().seconds is not None)
    kept = gpu_run.conditions()
    assert [look.ranks[0].python_call_ns for look in (kept.before, kept.after)] == [100.0, 200.0]


def test_a_driver_that_hangs_holds_nobody_up(gpu_run, monkeypatch):
    nvml, asked, stopped, answered = FakeNvml(), threading.Event(), threading.Event(), threading.Event()
    answer = nvml.answers["nvmlDeviceGetMemoryInfo"]

    def hangs(handle):
        asked.set()
        stopped.wait(60)
        answered.set()
        return answer(handle)

    nvml.answers["nvmlDeviceGetMemoryInfo"] = hangs
    nvml.install(monkeypatch)
    sampler = Sampler(gpu_run, [(0, "GPU-aa")])
    assert asked.wait(30)
    sampler.stop()
    assert not answered.is_set(), "it does not wait for the driver"
    stopped.set()


def test_a_clock_that_jumps_is_one_sentence(gpu_run, monkeypatch):
    real, offset = time.time, [0.0]
    monkeypatch.setattr("labkit.engine.sampler.time.time", lambda: real() + offset[0])
    sampler = Sampler(gpu_run, [])
    soon(gpu_run.conditions_file.exists)
    offset[0] = -3600.0
    sampler.stop()
    soon(lambda: gpu_run.conditions().seconds is not None)
    (note,) = gpu_run.conditions().notes
    assert "the wall clock moved by -3600 s" in note
    assert 0 <= gpu_run.conditions().seconds < 30


def test_the_line_below_the_bar_shows_what_is_known(tmp_path):
    assert progress.line({}) == ""
    host = {"at_s": 1, "gpu": None, "cpu_percent": 87.4, "memory_available_gib": 12.34}
    assert progress.line({None: host}) == "CPU: 87 %, 12.3 GiB free"
    gpus = {1: {"gpu": 1, "memory_mib": 2048}, 0: {"gpu": 0, "utilisation_percent": 97, "memory_mib": 1024}}
    assert progress.line({None: host, **gpus}) == "GPU 0: 97 %, 1.0 GiB | GPU 1: 2.0 GiB"


def test_the_line_follows_the_samples_and_vanishes(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("LABKIT_PROGRESS")
    monkeypatch.setattr("labkit.engine.progress.SHOW_SECONDS", 0.0)
    run, progress = Run(tmp_path), ProgressBars(Faults(), progress=True)
    progress.points_bar()
    shown = LiveLine(run, progress.show_below)
    shown.update()
    with run.samples_file.open("a") as file:
        for busy in (11.0, 22.0):
            file.write(json.dumps({"at_s": 0.0, "gpu": None, "cpu_percent": busy}) + "\n")
            file.flush()
            shown.update()
    progress.close()
    drawn = capsys.readouterr().err
    assert "CPU: 11 %" in drawn
    assert "CPU: 22 %" in drawn
    assert f"\r{' ' * len('CPU: 22 %')}" in drawn.rpartition("CPU: 22 %")[2], "blanks are drawn over it"
