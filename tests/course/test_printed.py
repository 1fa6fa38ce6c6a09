"""What an answer prints is shown with its verdict, and a traceback begins at the student's line: with real workers."""

from __future__ import annotations

import pytest

from labkit.course import answers, exercise
from labkit.course.exercises import Exercise, Exercises
from labkit.course.verdict import HUNG, RAISED, RIGHT, Verdict
from labkit.engine.function import MOST_PRINTED
from lessons import benchmarking, broadcast

NAME = "sharding.held_bytes"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")


def checked(body: str, before: str = "", patience_s: float = 20.0) -> Verdict:
    """Check an answer of this body; every answer that returns is right."""
    answers.save(NAME, f"{before}\ndef held_bytes(x):\n    {body}\n")
    one = Exercise("held_bytes", [[1], [2]], lambda given: Verdict("held_bytes", RIGHT, {}))
    return Exercises("sharding", one)("held_bytes", patience_s=patience_s)


def test_each_call_is_printed_once():
    verdict = checked("print('with', x); return x")
    assert (verdict.outcome, verdict.printed.splitlines()) == (RIGHT, ["with 1", "with 2"])
    assert "with 1" in verdict._repr_markdown_() and "with 1" in repr(verdict)


def test_what_is_printed_before_an_error_is_shown_and_the_traceback_begins_at_the_answer():
    verdict = checked("print('before it'); return inner(x)", "def inner(x):\n    return 1 / 0")
    assert verdict.outcome == RAISED and "before it" in verdict.printed
    first = next(line for line in verdict.detail.splitlines() if line.startswith("  File"))
    assert "sharding_held_bytes.py" in first and "held_bytes" in first.rpartition("in ")[2]
    assert "in inner" in verdict.detail and "labkit/engine" not in verdict.detail


def test_an_error_that_follows_from_another_keeps_both():
    verdict = checked("raise ValueError('no') from error", "try:\n    {}['a']\nexcept KeyError as e:\n    error = e")
    assert "KeyError" in verdict.detail and "ValueError: no" in verdict.detail
    assert "labkit/engine" not in verdict.detail.rpartition("direct cause")[2]


@pytest.mark.slow
def test_what_an_endless_loop_printed_is_shown_and_is_not_endless():
    verdict = checked("while True: print('round')", patience_s=3)
    assert verdict.outcome == HUNG
    assert "round" in verdict.printed and len(verdict.printed) < 2 * MOST_PRINTED


@pytest.mark.slow
def test_launches_of_their_own_show_what_is_printed():
    answers.save(
        "benchmarking.timed", "def timed(step, synchronize, clock):\n    print('timing')\n    return 1, 2, 3\n"
    )
    assert "timing" in benchmarking.check("timed").printed
    text = "def pipelined(source, copies, chunks, lanes):\n    print('in', chunks, 'chunks')\n"
    answers.save("broadcast.pipelined", text)
    assert "in 2 chunks" in broadcast.check("pipelined").printed


def test_a_traceback_without_the_answer_stays_whole():
    text = f'{exercise.TRACEBACK}  File "/lib/a.py", line 1, in f\n    g()\nValueError: no\n'
    assert exercise.from_the_students_line(text) == text
