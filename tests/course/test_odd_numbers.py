"""NaN, infinite numbers, −0.0, numpy's scalars and wrong shapes, given to every exercise in place of a right answer."""

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from exercises_tried import ON_RANKS, exercise_of, given_by, solution_of

from labkit.course import answers
from labkit.course.verdict import RIGHT, WRONG, Verdict
from lessons.benchmarking.exercises import judge_timed
from lessons.benchmarking.plan import SITUATIONS
from lessons.benchmarking.worker.device import drive
from lessons.precision_memory.exercises import judge_peaks

FILL_BUFFERS = {name for name in answers.exercises() if name.startswith("broadcast.")}
RETURNS = [name for name in answers.exercises() if name not in FILL_BUFFERS | ON_RANKS]
ODD = [math.nan, math.inf, -math.inf, 10**400, np.float32("nan"), np.float64("inf")]
Change = Callable[[Any], Any]


def judged(name: str, change: Change) -> Verdict:
    """Return the verdict on what the reference solution returns, changed, as a worker brings it."""
    if name == "benchmarking.timed":
        timed = lambda *tools: change(solution_of(name)(*tools))  # noqa: E731
        return judge_timed([drive(timed, situation) for situation in SITUATIONS], [(one,) for one in SITUATIONS])
    given = given_by(change, [[value] for value in right(name)])
    if name.endswith("peak_bytes"):
        return judge_peaks(given, right(name))
    return exercise_of(name).judge(given, exercise_of(name).inputs)


@cache
def right(name: str) -> list:
    return [solution_of(name)(*copy.deepcopy(list(arguments))) for arguments in exercise_of(name).inputs]


def each_number(value: Any, change: Change) -> Any:
    """Return a value with each number in it changed; a result that has none is changed as a whole."""
    return _numbers(value, change) if _has_numbers(value) else change(0.0)


def _has_numbers(value: Any) -> bool:
    return any(map(_has_numbers, value)) if isinstance(value, list | tuple) else type(value) in (int, float)


def _numbers(value: Any, change: Change) -> Any:
    if isinstance(value, list | tuple):
        return [_numbers(item, change) for item in value]
    return change(value) if type(value) in (int, float) else value


def first_number(value: Any, change: Change) -> Any:
    """Return a value with the first number in it changed; a result that has none is changed as a whole."""
    numbers: Iterator[bool] = iter([True])
    return each_number(value, lambda number: change(number) if next(numbers, False) else number)


@pytest.mark.parametrize("name", RETURNS)
def test_what_is_no_number_is_never_right(name):
    for place, odd in itertools.product((each_number, first_number), ODD):
        verdict = judged(name, lambda value, place=place, odd=odd: place(value, lambda _: odd))
        assert verdict.outcome == WRONG, (place.__name__, odd, verdict)
        assert str(verdict) and all(verdict.faults.values())


@pytest.mark.parametrize("name", RETURNS)
def test_minus_zero_in_place_of_zero_is_no_mistake(name):
    zero = lambda number: -0.0 if number == 0 and isinstance(number, float) else number  # noqa: E731
    assert judged(name, lambda value: each_number(value, zero) if _has_numbers(value) else value).outcome == RIGHT
    assert judged(name, lambda value: each_number(value, lambda _: -0.0)).outcome == WRONG


@pytest.mark.parametrize("name", RETURNS)
def test_numpys_scalars_are_numbers(name):
    scalar = lambda number: np.float64(number) if isinstance(number, float) else np.int64(number)  # noqa: E731
    verdict = judged(name, lambda value: each_number(value, scalar) if _has_numbers(value) else value)
    assert verdict.outcome == RIGHT, verdict


def longer(value: Any) -> Any:
    return [*value, *value[-1:], 0] if isinstance(value, list | tuple) else [value, value]


def shorter(value: Any) -> Any:
    return value[:-1] if isinstance(value, list | tuple) else []


SHAPES: dict[str, Change] = {
    "in a list": lambda value: [value],
    "in a dict": lambda value: {"value": value},
    "an array of two rows": lambda value: np.zeros((2, 3)),
    "an empty array": lambda value: np.zeros(0),
    "as text": repr,
    "longer": longer,
    "shorter": shorter,
}
OTHERS = [None, "text", {}, 3.5, -1, True, [[]], [None], [["F0", "B0"]], {"a": [1]}]
SHAPES |= {repr(value): lambda _, value=value: value for value in OTHERS}


@pytest.mark.parametrize("name", RETURNS)
def test_a_wrong_shape_is_never_right(name):
    for shape, change in SHAPES.items():
        verdict = judged(name, change)
        assert verdict.outcome == WRONG, (shape, verdict)
        assert all(sentence and len(sentence) < 1000 for sentence in verdict.faults.values()), shape
