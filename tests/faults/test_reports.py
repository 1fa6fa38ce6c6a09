"""The real reason arrives, whatever the lab has done to what its report needs; no row is written twice."""

from __future__ import annotations

import pytest
from failing_launches import failed, launch, nothing_left
from failing_plan import Failing

from labkit.engine.errors import WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("fault", ["no output", "no files", "patches"])
def test_a_raise_whose_report_meets_what_the_lab_has_broken(fault):
    error = failed(WorkerRaised, fault)
    assert error.sentence == f"rank 1 raised ValueError: the real reason at point 0 (seed=0, fault={fault})"
    assert "in raise_value_error" in error.detail


def test_an_exception_whose_class_has_no_readable_name():
    error = failed(WorkerRaised, "nameless")
    assert error.sentence == "rank 1 raised Unnamed: the real reason at point 0 (seed=0, fault=nameless)"
    assert "in raise_nameless" in error.detail


def test_a_lab_that_clears_the_environment():
    run = launch(Failing(faults=("no environment", "none")))
    assert (run.status["state"], len(run.rows)) == ("finished", 4)


def test_interrupts_that_never_stop_in_one_rank():
    error = failed(WorkerRaised, "interrupts")
    assert error.sentence == "rank 1 raised KeyboardInterrupt at point 0 (seed=0, fault=interrupts)"
    assert "in interrupt_from_threads" in error.detail


def test_a_forked_process_that_comes_back_writes_no_row():
    error = failed(WorkerRaised, "none", "fork", "none", rank=pytest.approx(0.5, abs=0.5))
    assert "a process that os.fork() made inside measure() has come back to the worker" in error.sentence
    assert error.run.rows["point"].tolist().count(1) == 2
    assert error.run.rows.duplicated(["point", "rank", "iteration"]).sum() == 0


def test_a_forked_process_that_ends_is_no_fault():
    run = launch(Failing(faults=("fork and exit", "none")))
    nothing_left(run)
    assert (run.status["state"], len(run.rows)) == ("finished", 4)
