"""Hints of an exercise, one step after another."""

from __future__ import annotations

import pytest

from labkit.course.exercises import Exercise, Exercises
from labkit.course.verdict import RIGHT, Verdict


def exercise(name: str, *hints: str) -> Exercise:
    return Exercise(name, [[1]], lambda given: Verdict(name, RIGHT, {}), hints=hints)


def test_hints_come_one_after_another_and_the_last_one_again():
    check = Exercises("lab", exercise("ring", "look there", "a loop", "for part in parts"), exercise("tree", "halve"))
    given = [check.hint("ring").data for _ in range(2)]
    assert "halve" in check.hint("tree").data
    given += [check.hint("ring").data for _ in range(2)]
    expected = ["look there", "a loop", "for part in parts", "for part in parts"]
    assert [text in one for text, one in zip(expected, given, strict=True)] == [True] * 4
    assert "for part" not in "".join(given[:2]), "no step tells of a later one"


def test_an_exercise_without_hints_and_one_that_is_unknown():
    check = Exercises("lab", exercise("ring"))
    assert "no hints" in check.hint("ring").data
    with pytest.raises(ValueError, match="ring"):
        check.hint("rong")
