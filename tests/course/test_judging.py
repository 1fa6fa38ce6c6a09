"""The judge of functions that return a value, on a rule of one line: which mistake it names, and which not."""

from __future__ import annotations

import pytest

from labkit.course.judging import Mistake, judge_of

CASES = [(6, 3), (8, 0), (10, 5), (12, 4)]


def rate(amount: int, workers: int) -> float | None:
    return amount / workers if workers else None


def undivided_by_one(amount: int, workers: int) -> float:
    """Give what is right less 1: with no workers that cannot be computed."""
    return amount / workers - 1


JUDGE = judge_of(
    "rate",
    rate,
    (Mistake("less_one", undivided_by_one, "that is one less", throughout=True),),
    result_form="a number or None",
    rule="divide the amount by the workers",
    merit="no workers, no rate",
)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([1.0, 7.0, 1.0, 2.0], "less_one"),  # what was given for no workers says nothing about this mistake
        ([1.0, None, 1.0, 2.0], "less_one"),
        ([1.0, None, 3.0, 2.0], "wrong"),  # another case gives something else: by chance
    ],
)
def test_a_mistake_that_cannot_be_made_with_some_arguments_is_judged_by_the_others(given, kind):
    assert next(iter(JUDGE(given, CASES).faults)) == kind


def test_lists_of_floats_are_shown_with_the_digits_that_tell_them_apart():
    def thirds(count: int) -> list:
        return [count / 3, [count, 1.00001]]

    judge = judge_of("thirds", thirds, (), result_form="a list", rule="divide by three", merit="thirds")
    (said,) = judge([[1 / 3 + 1e-9, [1, 2 / 3]]], [(1,)]).faults.values()
    assert said.startswith("`thirds(1)` gives [0.333333, [1, 0.666667]] instead of [0.333333, [1, 1.00001]].")
    (said,) = judge([[1 / 3, [1, 1.0000121]]], [(1,)]).faults.values()
    assert "1.0000121]] instead of [0.333333, [1, 1.00001]]" in said
