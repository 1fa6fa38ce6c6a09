"""However a run ends, none of its processes outlives it, and none of anybody else's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from faults_plan import Faults
from launches import failed, kernel, soon, the_run

from labkit import node
from labkit.engine import watch
from labkit.engine.errors import LauncherLost
from labkit.engine.launch import launch
from labkit.engine.run import Run


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
    assert process.poll() is not None
    assert not watch.members(run)
    process.stdout.close()


def test_an_interrupt_waits_for_what_must_not_be_interrupted():
    done = []
    with pytest.raises(KeyboardInterrupt), watch.uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
