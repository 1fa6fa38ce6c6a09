"""Answers that look right are refused, and right ones in unusual style are not: by the check and by the grader."""

import functools
import importlib
import json

import pytest
from attempts import ACCEPTED, REFUSED
from exercises_tried import exercise_of, given_by, written_as

from labkit.course.exercises import cases_of
from labkit.course.verdict import RIGHT, WRONG
from labkit.theory.step_memory import Shape, ledger
from lessons.precision_memory.exercises import judge_peaks

STUDENTS = ("", "ada", "grace")  # "" stands for the notebook's check


def tried(attempts: dict[str, dict[str, str]]) -> list:
    return [
        pytest.param(name, code, student, id=f"{name}: {what}, {student or 'the check'}")
        for name, codes in attempts.items()
        for what, code in codes.items()
        for student in STUDENTS
        if student or not cases_of(name).driver
    ]


def outcome(name: str, code: str, student: str) -> str:
    """Return how an answer is judged: with the notebook's cases, or with those of a student."""
    exercise, cases, function = exercise_of(name), cases_of(name), written_as(name, code)
    inputs = json.loads(json.dumps(cases.arguments_for(name, student) if student else exercise.inputs))
    if cases.driver:
        function = functools.partial(importlib.import_module(cases.driver).drive, function)
    given = given_by(function, inputs)
    if name == "precision_memory.peak_bytes":
        return judge_peaks(given, [*map(peak, inputs)], configurations=inputs).outcome
    return (cases if student else exercise).judge(given, inputs).outcome


def peak(configuration: list) -> float:
    """Return the bytes that a measurement of a configuration comes to, within a percent or so."""
    *sizes, precision, phase = configuration
    return sum(ledger(Shape(*sizes, precision), f"{phase} step").values())


@pytest.mark.parametrize(("name", "code", "student"), tried(REFUSED))
def test_an_answer_that_looks_right_is_refused(name, code, student):
    assert outcome(name, code, student) == WRONG


@pytest.mark.parametrize(("name", "code", "student"), tried(ACCEPTED))
def test_a_right_answer_in_unusual_style_is_accepted(name, code, student):
    assert outcome(name, code, student) == RIGHT
