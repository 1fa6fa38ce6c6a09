"""Of a launch that stands still, the rank that the others wait for is named, and where it stood."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from faults_plan import Faults

from labkit import node
from labkit.engine.diagnosis import Diagnosis
from labkit.engine.run import Run

SESSION = SimpleNamespace(last_error=str, is_stopped=bool)
WAITS = (
    '  File "/x/site-packages/torch/distributed/c10d.py", line 9 in all_reduce\n  File "/x/lab.py", line 7 in measure\n'
)
AGREES = '  File "/x/site-packages/labkit/engine/worker.py", line 9 in agree\n'
NAPS = '  File "/x/lab.py", line 12 in nap\n'


@pytest.fixture
def diagnosis(tmp_path, monkeypatch) -> Diagnosis:
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    return Diagnosis(Run.create(Faults(), node.here()))


def reported(diagnosis: Diagnosis, rank: int, *names: str, stack: str) -> None:
    for name in names:
        diagnosis._events[rank, name].append({"event": name, "point": 0, "at": 1.0})
        diagnosis.last[rank] = name
    diagnosis.run.stack_file(rank).write_text(f"Current thread 0x1:\n{stack}")


def test_a_rank_that_has_finished_early_is_named(diagnosis):
    reported(diagnosis, 0, "point", stack=WAITS)
    reported(diagnosis, 1, "point", "finished", stack="")
    error = diagnosis.hung("no rank made progress for 2 s", SESSION)
    assert error.rank == 1
    said = "rank 0 waits in all_reduce (lab.py:7); rank 1 has finished early, and joins no collective any more"
    assert error.sentence.endswith(said)


@pytest.mark.parametrize(
    ("first", "second", "culprit"),
    [(AGREES, "", 1), (AGREES, WAITS, 0), (WAITS, AGREES, 1)],
    ids=["silent", "waits", "waited for"],
)
def test_a_rank_that_has_returned_is_named_where_nobody_stands_elsewhere(diagnosis, first, second, culprit):
    """Without a stack, a rank answers no signal: the one that has returned waits for it."""
    reported(diagnosis, 0, "point", stack=first)
    reported(diagnosis, 1, "point", stack=second)
    assert diagnosis.hung("no rank made progress for 2 s", SESSION).rank == culprit
    assert diagnosis.every_rank_waits() == bool(second)


def test_a_wait_that_the_request_for_stacks_has_ended(diagnosis):
    reported(diagnosis, 0, "point", "finished", stack=WAITS)
    reported(diagnosis, 1, "point", "finished", stack=NAPS)
    error = diagnosis.hung("no rank made progress for 2 s", SESSION, woken=(0, 1))
    assert error.rank == 1
    since = "and has finished since it was asked for its stack"
    assert f"rank 0 waits in all_reduce (lab.py:7), {since}; rank 1 is at lab.py:12 in nap, {since}; " in error.sentence
    assert error.sentence.endswith("the signal that asks for stacks (SIGUSR1) interrupted the wait")


@pytest.mark.parametrize("last_line", ['  File "<string>", line 1 in <module>', "  ...", "  <invalid frame>", ""])
def test_a_stack_ends_at_its_outermost_frame_or_where_python_cannot_go_on(diagnosis, last_line):
    reported(diagnosis, 0, "point", stack=NAPS + (last_line and f"{last_line}\n"))
    assert diagnosis.stack_is_complete(0) == bool(last_line)
