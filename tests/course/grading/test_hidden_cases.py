"""The hidden cases of every exercise: the shown ones and more, other for each student; right answers pass them."""

import json
from itertools import pairwise

import pytest
from exercises_tried import exercise_of, given_by, solution_of, written_as
from slips import SLIPS, slipped

from labkit.course import answers
from labkit.course.exercises import cases_of
from labkit.course.verdict import RIGHT, WRONG

EXERCISES = answers.exercises()
STUDENTS = [f"student {number}" for number in range(12)]
# These need a launch or torch to be judged; test_confined_judge.py tries them in confined processes.
CALLED = [name for name in EXERCISES if not cases_of(name).driver and name != "precision_memory.peak_bytes"]


def shown(name: str) -> set[str]:
    return {json.dumps(list(arguments)) for arguments in exercise_of(name).inputs}


@pytest.mark.parametrize("name", EXERCISES)
def test_cases_hold_the_shown_ones_and_others_that_differ_between_students(name):
    cases = cases_of(name)
    for student in STUDENTS:
        assert {json.dumps(arguments) for arguments in cases.arguments_for(name, student)} > shown(name)
    drawn = [json.dumps(cases.arguments_for(name, student)) for student in STUDENTS]
    assert len({*drawn}) > len(drawn) / 2
    assert drawn == [json.dumps(cases.arguments_for(name, student)) for student in STUDENTS], (
        "the same student, the same cases"
    )
    assert drawn[0] != json.dumps(cases.arguments_for(name, STUDENTS[0], "a secret")) or len({*drawn}) < len(drawn)


@pytest.mark.parametrize("name", CALLED)
def test_the_reference_solution_is_right_in_all_cases(name):
    cases = cases_of(name)
    for student in STUDENTS:
        inputs = cases.arguments_for(name, student)
        verdict = cases.judge(given_by(solution_of(name), inputs), inputs)
        assert verdict.outcome == RIGHT and verdict.merits, (student, inputs)


@pytest.mark.parametrize("name", SLIPS)
def test_no_student_gets_points_for_what_the_notebook_refuses(name):
    cases = cases_of(name)
    for old, new, _ in SLIPS[name]:
        function = written_as(name, slipped(name, old, new))
        for student in STUDENTS[:3]:
            inputs = cases.arguments_for(name, student)
            assert cases.judge(given_by(function, inputs), inputs).outcome == WRONG, (new, student)


@pytest.mark.parametrize("name", CALLED)
def test_what_was_right_in_the_shown_cases_is_no_answer_to_the_hidden_ones(name):
    """An answer that has only remembered results of other cases is wrong."""
    cases, wrong = cases_of(name), 0
    for student, other in pairwise(STUDENTS):
        inputs = cases.arguments_for(name, student)
        remembered = given_by(solution_of(name), cases.arguments_for(name, other))
        given = (remembered * len(inputs))[: len(inputs)]
        wrong += cases.judge(given, inputs).outcome != RIGHT
    assert wrong >= len(STUDENTS) - 3
