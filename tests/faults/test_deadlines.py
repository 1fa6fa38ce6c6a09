"""Runs that stand still: every rank's stack is dumped, the error says where each one stands and names the culprit."""

from __future__ import annotations

import pytest
from ends_plan import Ends
from failing_launches import failed, place

from labkit.engine.errors import WorkerDied, WorkerHung

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def line(text: str) -> str:
    """A line of the lab, as the error names it."""
    return place(text, "ends_worker.py").replace('", line ', ":").removesuffix(", in ")


@pytest.mark.parametrize(
    ("fault", "stands", "last"),
    [
        pytest.param("hang", "is at {} in sleep", "never joins the others", marks=pytest.mark.quick),
        ("slow disk", "is at {} in sleep", "never joins the others"),
        ("deadlock", "is at {} in fault", "# for ever"),
        ("deadlock with the lock of Python", "is at {} in fault", "# for ever"),
        ("return", "has returned, and waits for the others to end this point", ""),
        ("stop", "is past 'point', and answers no signal: it may be stopped", ""),
    ],
)
def test_a_rank_that_never_joins_the_others(fault, stands, last):
    error = failed(WorkerHung, "none", fault, "none", plan=Ends, patience_s=2)
    waits = f"waits in all_reduce ({line('all_reduce(')})"
    stands = stands.format(line(last)) if last else stands
    why = f"no rank made progress for 2 s at point 1 (seed=0, fault={fault})"
    assert error.sentence == f"{why}: rank 0 {waits}; rank 1 {stands}"
    assert error.detail.split("\n")[:3] == [
        "rank  GPU  point  where it stands",
        f"   0    –      1  {waits}",
        f"   1    –      1  {stands}",
    ]
    assert place("all_reduce(", "ends_worker.py").removesuffix(", in ") in error.run.stack_file(0).read_text()
    assert not last or place(last, "ends_worker.py").removesuffix(", in ") in error.detail
    assert error.run.rows["point"].tolist() == [0, 0, 1, 1]


def test_a_sleep_that_signals_wake_is_reported_as_any_other():
    """Progress is what a rank tells: a row or an event. That its process wakes, and even computes, is none.

    A rank that waits for a lock wakes as well, and a loop that never ends computes: by what the system says of them,
    neither would ever be found. Who sleeps on purpose for longer than `patience_s` gives a longer one, or records.
    """
    error = failed(WorkerHung, "none", "woken", plan=Ends, patience_s=2)
    assert error.sentence.startswith("no rank made progress for 2 s at point 1 (seed=0, fault=woken): rank 0 waits in ")
    assert f"rank 1 is at {line('never joins the others')} in sleep" in error.sentence
    assert error.run.rows["point"].tolist() == [0, 0, 1, 1]


def test_a_sleep_that_the_request_for_stacks_ends():
    error = failed(WorkerHung, "sleep in C", patience_s=2)
    stands = place("(None).sleep(60)", "failing_odd.py").replace('", line ', ":").removesuffix(", in ")
    assert f"rank 1 is at {stands} in sleep_with_the_lock_of_python" in error.sentence


def test_collectives_that_do_not_match():
    error = failed(WorkerHung, "mismatch", plan=Ends, rank=0, patience_s=2)
    gathers, reduces = f"waits in all_gather ({line('while the others reduce')})", line("all_reduce(")
    assert error.sentence.endswith(f"rank 0 {gathers}; rank 1 waits in all_reduce ({reduces})")


def test_the_limit_of_the_whole_run():
    """Rows come all the time, so that patience alone would never end it."""
    error = failed(WorkerHung, "busy", plan=Ends, rank=0, limit_s=4)
    assert error.sentence.startswith("the run outlasted its time limit at point 0 (seed=0, fault=busy): rank 0 is ")
    assert len(error.run.rows) > 4


def test_a_limit_that_is_over_while_workers_start():
    error = failed(WorkerHung, plan=Ends, before="hang", limit_s=3)
    assert error.sentence == (
        "the run outlasted its time limit before the first point: rank 0 waits for the others to get ready; "
        f"rank 1 is at {line('never joins the others')} in sleep"
    )
    assert error.run.rows.empty


def test_a_rank_that_exits_with_status_0_while_another_waits():
    error = failed(WorkerDied, "none", "exit 0", plan=Ends)
    assert error.sentence == (
        "rank 1 ended before it had finished, without an error status at point 1 (seed=0, fault=exit 0)"
    )
    assert error.run.rows["point"].tolist() == [0, 0, 1, 1]
