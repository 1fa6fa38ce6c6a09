"""Answers that end badly, in real workers: they raise, exit, never end, or give what nobody can read."""

from __future__ import annotations

from importlib import import_module

import pytest
from exercises_tried import exercise_of

from labkit.course import answers
from labkit.course.exercises import Exercise
from labkit.course.verdict import HUNG, RAISED, WRONG, Verdict


def kind(name: str) -> str:
    """Return how an exercise is checked: as its lab alone does, with a launch or a word of its own, or as most are."""
    exercise, lab = exercise_of(name), name.partition(".")[0]
    return lab if exercise.check or exercise.on_failure is not Exercise.on_failure else "as most are"


NAMES = [*{kind(name): name for name in answers.exercises()}.values()]  # one of each kind


pytestmark = pytest.mark.usefixtures("answers_folder")


def checked(name: str, body: str, patience_s: float = 20.0) -> Verdict:
    lab, _, function = name.partition(".")
    first, *others = exercise_of(name).functions
    more = "".join(f"\n{other} = {first}\n" for other in others)
    answers.save(name, f"import os, sys\ndef {first}(*arguments):\n    print('here it is')\n    {body}\n{more}")
    return import_module(f"lessons.{lab}").check(function, patience_s=patience_s)


def slow_where_its_lesson_tries_it(name: str):
    return pytest.param(name, marks=pytest.mark.slow) if kind(name) in ("broadcast", "benchmarking") else name


@pytest.mark.parametrize("name", [*map(slow_where_its_lesson_tries_it, NAMES)])
def test_an_answer_that_raises(name):
    verdict = checked(name, "raise ValueError('three chunks')")
    (sentence,) = verdict.faults.values()
    assert verdict.outcome == RAISED and "ValueError" in sentence and "three chunks" in sentence
    assert f"`{name.partition('.')[2]}" in sentence and "line 4" in sentence and "rank 0" not in sentence
    first = next(line for line in verdict.detail.splitlines() if line.startswith("  File"))
    assert name.replace(".", "_") in first and "here it is" in verdict.printed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["sys.exit(0)", "os._exit(3)"])
@pytest.mark.slow
def test_an_answer_that_exits(name, way):
    verdict = checked(name, way)
    assert verdict.outcome == RAISED, verdict
    assert "return the result" in verdict.faults["ends"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_an_answer_that_never_ends(name):
    verdict = checked(name, "while True: pass", patience_s=3)
    assert verdict.outcome == HUNG, verdict
    assert "did not come back within 3 s" in verdict.faults["hung"] and "here it is" in verdict.printed
    frames = [line for line in verdict.detail.splitlines() if line.startswith("  File")]
    assert name.replace(".", "_") in frames[-1], "no frame of what called the answer"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_an_answer_of_the_wrong_type(name):
    verdict = checked(name, "return {'a': 1}")
    assert verdict.outcome == WRONG and verdict.faults, verdict
    assert "here it is" in verdict.printed
