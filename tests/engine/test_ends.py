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
from labkit.engine import processes, watch
from labkit.engine.errors import LauncherLost, WorkerHung
from labkit.engine.interrupts import Interrupts
from labkit.engine.processes import MARK_VARIABLE, members
from labkit.engine.run import Run
from labkit.engine.session import AgentSession
from labkit.launching import launch


@pytest.mark.slow
def test_a_killed_agent_takes_its_workers_along(tmp_path):
    launch(Faults())  # so that the agent is there

    def kill():
        the_run(tmp_path, rows=2, among=2)
        AgentSession._current.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    error = failed(LauncherLost, "sleep", patience_s=1e6, limit_s=1e6)  # neither ends the run: its agent's end does
    killer.join()
    assert error.sentence.endswith("it ended with status -9")
    assert len(error.run.rows) == 2
    assert launch(Faults()).status["state"] == "finished"


@pytest.mark.slow
def test_an_agent_that_is_stopped_before_a_launch_is_told_in_time():
    launch(Faults())  # so that the agent is there
    agent = AgentSession._current.process
    agent.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    error = failed(WorkerHung, "none", limit_s=3)
    assert time.monotonic() - begun < 10, "it neither waits for the agent nor for its end"
    assert error.sentence.endswith(f"; the process that starts the workers, {agent.pid}, was stopped (SIGSTOP)")
    assert launch(Faults()).status["state"] == "finished"
    assert AgentSession._current.process is agent, "it went on"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.slow
def test_an_interrupt_ends_the_run_and_keeps_its_rows(tmp_path, times):
    process = kernel("none", "sleep")
    the_run(tmp_path, rows=4)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # the second one comes while the first is being handled
    out, _ = process.communicate(timeout=60)
    told = json.loads(out)
    assert told["interrupt"]
    assert told["error"] == "Interrupted"
    assert (told["rows"], told["state"], told["left"]) == (4, "interrupted", [])
    assert "4 rows were measured before that" in told["text"]


@pytest.mark.slow
def test_an_interrupt_while_workers_start(tmp_path):
    process = kernel("none", "sleep")
    soon(lambda: any(members(Run(plan.parent)) for plan in tmp_path.glob("runs/*/plan.json")))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    told = json.loads(out)
    assert (told["error"], told["left"]) == ("Interrupted", [])


def test_nothing_outlives_a_killed_kernel(tmp_path):
    process = kernel("sleep")
    run = the_run(tmp_path, rows=2)
    assert len(members(run)) == 2, "two workers"
    process.kill()
    soon(lambda: not members(run))
    process.communicate()


@pytest.mark.slow
def test_nothing_outlives_a_kernel_killed_while_workers_start(tmp_path):
    process = kernel("sleep")
    folder = soon(lambda: next((plan.parent for plan in tmp_path.glob("runs/*/plan.json")), None))
    soon(lambda: members(Run(folder)))
    process.kill()
    soon(lambda: not members(Run(folder)))
    process.communicate()


def test_processes_of_other_runs_are_left_alone(tmp_path):
    """A process that carries the mark of another run, and one without, both live on."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    others = [
        subprocess.Popen(sleeper, env=os.environ | {MARK_VARIABLE: Run(tmp_path / "another run").mark}),
        subprocess.Popen(sleeper),
    ]
    try:
        launch(Faults())
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_end_kills_what_does_not_listen(monkeypatch):
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(watch, "AGENT_SECONDS", 0.5)
    run = Run.create(Faults(), node.here())
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", deaf], env=os.environ | {MARK_VARIABLE: run.mark}, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    with AgentSession.borrow(Faults.worker) as session:
        watch.Watch.end(run, 1, session)
    assert process.poll() is not None
    assert not members(run)
    process.stdout.close()


def test_an_interrupt_waits_for_what_must_not_be_interrupted():
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.later():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_the_first_interrupt_is_heard():
    with Interrupts():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_worker_hears_the_signal_that_came_before_it_could():
    """As in the forkserver, which ignores what the agent ignores; the agent may stop a worker that was just forked."""
    code = """if True:
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from labkit.engine import enter
        signal.pthread_sigmask(signal.SIG_BLOCK, enter.HELD_SIGNALS)
        if (worker := os.fork()) == 0:
            time.sleep(0.3)
            enter.restore_signals()
            os._exit(0)  # it has heard nothing
        for process in (worker, os.getpid()):
            os.kill(process, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.stdout.strip(), ended.returncode) == (str(-signal.SIGTERM), 0), ended.stderr


def test_who_frees_shared_memory_is_given_time_and_does_not_outlive_the_run(monkeypatch):
    """It ends by itself once nobody uses the memory; one that stands still is killed with the run."""
    monkeypatch.setattr(processes, "CARE_SECONDS", 0.5)
    run = Run.create(Faults(), node.here())
    command = [sys.executable, "-c", "import time; time.sleep(60)", "multiprocessing.resource_tracker"]
    caretaker = subprocess.Popen(command, env=os.environ | {MARK_VARIABLE: run.mark})
    soon(lambda: members(run))
    begun = time.monotonic()
    processes.kill(run)
    left, seconds = members(run), time.monotonic() - begun
    caretaker.kill()
    caretaker.wait()
    assert left == [] and seconds > 0.5
