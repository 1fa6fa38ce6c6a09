"""An interrupt at any moment: the cell gets a KeyboardInterrupt with the rows so far, and nothing is left."""

from __future__ import annotations

import signal
import time

import pytest
from ends_endings import interrupted, interrupted_while_workers_ignore_sigterm
from ends_plan import Ends
from ends_scenes import Kernel, soon
from failing_launches import launch, nothing_left

from labkit.engine.errors import Interrupted
from labkit.engine.interrupts import AGAIN_SECONDS, Interrupts
from labkit.engine.launches import Launches
from labkit.engine.processes import members

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.quick), 4])
def test_while_workers_ignore_sigterm(tmp_path, times):
    interrupted_while_workers_ignore_sigterm(tmp_path, times)


def test_while_the_agent_starts(tmp_path):
    with Kernel(tmp_path, "none") as kernel:
        soon(lambda: kernel.helpers("labkit.engine.agent"))  # on a GPU node, nvidia-smi runs before it
        kernel.process.send_signal(signal.SIGINT)
        interrupted(kernel.tells(), rows=0)  # no worker was started at all
        assert not kernel.family.look()


def test_while_workers_start(tmp_path):
    with Kernel(tmp_path, "sleep") as kernel:
        run = kernel.run()
        kernel.process.send_signal(signal.SIGINT)
        told = kernel.tells()
        assert told["rows"] in (0, 1, 2)  # on a busy machine they have started by then
        interrupted(told, told["rows"])
        nothing_left(run)


class Deaf:
    """Is interrupted where Python drops what is raised."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_an_interrupt_that_python_has_dropped():
    """The first interrupt is lost in a finaliser; the next one that comes a while later is not."""
    with Interrupts() as interrupts:
        Deaf()
        signal.raise_signal(signal.SIGINT)  # a quick one, as if the clean-up were about to begin
        time.sleep(AGAIN_SECONDS)
        try:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it is lost, too")
        except KeyboardInterrupt:
            with interrupts.later():  # the clean-up, which no other one disturbs
                time.sleep(AGAIN_SECONDS)
                signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_has_dropped_is_raised_at_the_launchs_end():
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        Deaf()
        with interrupts.later():
            time.sleep(AGAIN_SECONDS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moment", ["borrow_session", "start_workers"])
def test_an_interrupt_that_python_has_dropped_ends_the_launch_before_its_first_row(monkeypatch, moment):
    """It comes in a finaliser before the workers are started, or just after; the point would last a minute."""
    as_it_is = getattr(Launches, moment)

    def disturbed(launches, *given):
        done = as_it_is(launches, *given)
        Deaf()
        return done

    monkeypatch.setattr(Launches, moment, disturbed)
    with pytest.raises(Interrupted) as told:
        launch(Ends(faults=("sleep",)))
    assert told.value.run.rows.empty
    assert not members(told.value.run)


AGAIN_AND_AGAIN = """
import json, os, signal, threading
from ends_plan import Ends
from labkit import launch, members
signal.signal(signal.SIGINT, signal.default_int_handler)
run = launch(Ends())
told = []
for moment in range(11):
    timer = threading.Timer(moment * 0.045, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        run = launch(Ends())
        timer.join()
    except KeyboardInterrupt as error:
        told.append(type(error).__name__)
        run = getattr(error, "run", run)
    assert not members(run)
print(json.dumps({"told": told, "next": launch(Ends()).status["state"]}))
"""


def test_at_every_moment_of_a_launch(tmp_path):
    with Kernel(tmp_path, code=AGAIN_AND_AGAIN) as kernel:
        told = kernel.tells(seconds=100)
        assert told["next"] == "finished"
        assert len(told["told"]) == 11, "every interrupt is heard"
        assert {*told["told"]} == {"KeyboardInterrupt", "Interrupted"}, "before and after the launch, and within"
        assert not kernel.family.look()
