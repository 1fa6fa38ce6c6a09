"""Each boundary, count and size lies between two cases: wrong answers that differ there alone pass for no student."""

import importlib
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import groupby
from random import Random

import pytest
from boundaries import RIGHT, WRONG
from exercises_tried import exercise_of, given_by, solution_of, written_as
from slips import slipped, solution

from labkit.course import verdict
from labkit.course.exercises import cases_of

STUDENTS = range(200)
# Where several calls are one case, of a schedule, a ring or an epoch of all ranks: what they have in common.
GROUPS = {
    "pipeline.one_f_one_b": lambda rank, *setting: setting,
    "collectives.ring_step": lambda rank, step, ranks: ranks,
    "scaling.shard": lambda images, ranks, rank, epoch, drop_last: (images, ranks, drop_last),
}
SITUATIONS = [["noisy"], ["slow_first"], ["asynchronous"], ["raises"], ["raises_later"], ["raises_late"]]


def groups_of(name, inputs) -> list[str]:
    """Return the cases of some inputs, each as text: calls that are judged together."""
    key = GROUPS.get(name, lambda *arguments: arguments)
    groups = groupby(json.loads(json.dumps(inputs)), lambda arguments: key(*arguments))
    return [json.dumps([*calls]) for _, calls in groups]


@cache
def drawn(name) -> tuple[list[str], list[list[str]]]:
    """Return the cases of an exercise that are shown, and each student's drawn ones, the most frequent first."""
    every = [groups_of(name, cases_of(name).make(Random(f"{name} {student}"))) for student in STUDENTS]
    times = Counter(case for cases in every for case in cases)
    shown = groups_of(name, exercise_of(name).inputs or SITUATIONS)
    return shown, [sorted(cases, key=lambda case: -times[case]) for cases in every]


def given(name, function, calls) -> list:
    """Return what the judge takes of some calls."""
    if not (driver := cases_of(name).driver):
        return given_by(function, calls)
    drive = importlib.import_module(driver).drive
    return [json.loads(json.dumps(drive(function, *arguments))) for arguments in calls]


@cache
def due(name, case) -> list:
    return given(name, solution_of(name), json.loads(case))


def tried(name, text, is_wrong) -> Callable[[str], bool]:
    """Return whether code is right in a case. What raises is wrong; what `is_wrong` is judged where it differs only."""
    function, judge = written_as(name, text), cases_of(name).judge

    @cache
    def is_right(case):
        calls = json.loads(case)
        try:
            values = given(name, function, calls)
            return (is_wrong and values == due(name, case)) or judge(values, calls).outcome == verdict.RIGHT
        except Exception:
            return False

    return is_right


@pytest.mark.parametrize(("name", "slip"), [(name, slip) for name, slips in WRONG.items() for slip in slips])
def test_what_differs_at_one_boundary_passes_for_nobody(name, slip):
    is_right, (shown, every) = tried(name, slipped(name, *slip), is_wrong=True), drawn(name)
    assert not all(map(is_right, shown)), "in the notebook"
    assert not [student for student in STUDENTS if all(map(is_right, every[student]))]


@pytest.mark.parametrize("name", WRONG)
def test_right_answers_pass_for_everybody(name):
    shown, every = drawn(name)
    for text in (solution(name), *(slipped(name, *slip) for slip in RIGHT.get(name, ()))):
        is_right = tried(name, text, is_wrong=False)
        assert not [case for cases in (shown, *every) for case in cases if not is_right(case)], text
