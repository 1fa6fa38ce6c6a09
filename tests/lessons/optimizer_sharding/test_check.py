"""The symptoms of a sharded optimizer with a bug, each named; and a name that is no exercise."""

import pytest

from labkit.course.verdict import RIGHT, WRONG
from lessons import optimizer_sharding
from lessons.optimizer_sharding.exercises import verdict_of


def test_an_unknown_exercise_is_told_with_all_that_there_are():
    with pytest.raises(ValueError, match="'cuts' is no exercise; there are momentum_step, update_all, gathered"):
        optimizer_sharding.check("cuts")


SYMPTOMS = {
    "variant": "x",
    "error": 0.0,
    "first_error": 0.0,
    "drift": 0.0,
    "saved": 1.0,
}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"drift": 0.1, "error": 0.1, "first_error": 0.1}, {"sends_nothing"}),
        ({"error": 0.1}, {"stale_rate"}),
        ({"error": 0.1, "first_error": 0.1}, {"wrong"}),
        ({"saved": 0.5}, {"own_part"}),
        ({"error": 0.1, "saved": 0.5}, {"stale_rate", "own_part"}),
    ],
)
def test_symptoms(change, kinds):
    verdict = verdict_of(SYMPTOMS | change)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
