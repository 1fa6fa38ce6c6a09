"""The hidden cases of every exercise: the shown ones and more, other for each student; right answers pass them."""

import copy
import importlib
import json
from itertools import pairwise

import pytest
from slips import SLIPS, slipped

from labkit.course import answers
from labkit.course.exercises import cases_of
from labkit.course.grading.grade import exercise_of
from labkit.course.verdict import RIGHT, WRONG

EXERCISES = answers.exercises()
STUDENTS = [f"student {number}" for number in range(12)]
# These need a launch or torch to be judged; test_judged.py tries them in confined processes.
CALLED = [name for name in EXERCISES if not cases_of(name).driver and name != "precision_memory.peak_bytes"]


def shown(name: str) -> set[str]:
    return {json.dumps(list(arguments)) for arguments in exercise_of(name).inputs}


def results(function, inputs: list) -> list:
    """Return what a function gives in all cases, as it comes back from a confined process through JSON."""
    return json.loads(json.dumps([function(*copy.deepcopy(arguments)) for arguments in inputs]))


def solution_of(name: str):
    lab, _, function = name.partition(".")
    return getattr(importlib.import_module(f"lessons.{lab}.solutions"), function)


@pytest.mark.parametrize("name", EXERCISES)
def test_cases_hold_the_shown_ones_and_others_that_differ_between_students(name):
    cases = cases_of(name)
    for student in STUDENTS:
        assert {json.dumps(arguments) for arguments in cases.drawn(name, student)} > shown(name)
    drawn = [json.dumps(cases.drawn(name, student)) for student in STUDENTS]
    assert len({*drawn}) > len(drawn) / 2
    assert drawn == [json.dumps(cases.drawn(name, student)) for student in STUDENTS], "the same student, the same cases"
    assert drawn[0] != json.dumps(cases.drawn(name, STUDENTS[0], "a secret")) or len({*drawn}) < len(drawn)


@pytest.mark.parametrize("name", CALLED)
def test_the_reference_solution_is_right_in_all_cases(name):
    cases = cases_of(name)
    for student in STUDENTS:
        inputs = cases.drawn(name, student)
        assert cases.judge(results(solution_of(name), inputs), inputs).outcome == RIGHT, (student, inputs)


@pytest.mark.parametrize("name", SLIPS)
def test_no_student_gets_points_for_what_the_notebook_refuses(name):
    cases, function = cases_of(name), name.partition(".")[2]
    for old, new, _ in SLIPS[name]:
        scope: dict = {}
        exec(slipped(name, old, new), scope)
        for student in STUDENTS[:3]:
            inputs = cases.drawn(name, student)
            assert cases.judge(results(scope[function], inputs), inputs).outcome == WRONG, (new, student)


@pytest.mark.parametrize("name", CALLED)
def test_what_was_right_in_the_shown_cases_is_no_answer_to_the_hidden_ones(name):
    """An answer that has only remembered results of other cases is wrong."""
    cases, wrong = cases_of(name), 0
    for student, other in pairwise(STUDENTS):
        inputs = cases.drawn(name, student)
        remembered = results(solution_of(name), cases.drawn(name, other))
        given = (remembered * len(inputs))[: len(inputs)]
        wrong += cases.judge(given, inputs).outcome != RIGHT
    assert wrong >= len(STUDENTS) - 3
