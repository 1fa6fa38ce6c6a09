"""The check of a student's held_bytes, with real launches: right and wrong answers, each fault by its kind."""

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from lessons import sharding
from lessons.sharding.exercises import held_bytes, verdict_of

RIGHT_ANSWER = code_of("lessons.sharding.solutions.held_bytes")
HELD_BYTES = sharding.check.by_name["held_bytes"]

pytestmark = pytest.mark.usefixtures("elsewhere")


def own(parameters, ranks, stage):
    scope: dict = {}
    exec(RIGHT_ANSWER, scope)
    return scope["held_bytes"](parameters, ranks, stage)


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (own, set()),
        (lambda p, n, s: 1.02 * own(p, n, s), {"wrong"}),
        (lambda p, n, s: own(p, n, max(0, s - 1)), {"stage"}),
        (lambda p, n, s: own(p, n, min(3, s + 1)), {"ahead"}),
        (lambda p, n, s: own(p, n, s) / 4, {"numbers"}),
        (lambda p, n, s: own(p, n, s) - 4 * p / (n if s else 1), {"one_state"}),
        (lambda p, n, s: p * ((4 + 12 / n), (2 + 14 / n), 16 / n)[s - 1] if s else 16 * p, {"mixed"}),
        (lambda p, n, s: n * own(p, n, s), {"together"}),
        (lambda p, n, s: (1.5 if s == 0 else 1) * own(p, n, s), {"wrong"}),
        (lambda p, n, s: [own(p, n, s)], {"form"}),
        (lambda p, n, s: f"{own(p, n, s)} bytes", {"form"}),
        (lambda p, n, s: None, {"form"}),
        (lambda p, n, s: float("nan"), {"wrong"}),
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = HELD_BYTES.judge([function(*setting) for setting in HELD_BYTES.inputs], HELD_BYTES.inputs)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def test_a_stage_shards_what_it_says():
    assert [held_bytes(10, 2, stage) for stage in range(4)] == [160, 120, 100, 80]


def test_answers_in_a_worker():
    assert sharding.check("held_bytes").outcome == UNANSWERED
    answers.save("sharding.held_bytes", RIGHT_ANSWER)
    verdict = sharding.check("held_bytes")
    assert verdict.outcome == RIGHT, verdict
    answers.save("sharding.held_bytes", "def held_bytes(parameters, ranks, stage):\n    16 * parameters\n")
    verdict = sharding.check("held_bytes")
    assert set(verdict.faults) == {"form"}, "a function that forgets to return is not right"
    answers.save("sharding.held_bytes", "def held_bytes(parameters, ranks, stage):\n    return 1 / 0\n")
    verdict = sharding.check("held_bytes")
    assert verdict.outcome == RAISED
    assert "sharding_held_bytes.py" in verdict.detail


def test_an_unknown_exercise_names_those_there_are():
    with pytest.raises(ValueError, match="'buckets' is no exercise; there are sharded_step, held_bytes"):
        sharding.check("buckets")


ROW = {
    "variant": "A",
    "micro_batches": 4,
    "update_ratio": 1.0,
    "update_error": 1e-6,
    "largest_share": 0.3,
    "exchanges": 1.0,
}


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ({}, set()),
        ({"update_ratio": 4.1}, {"undivided"}),
        ({"update_ratio": 2.0, "update_error": 1.0}, {"wrong"}),
        ({"update_error": 0.01}, {"wrong"}),
        ({"exchanges": 4.0}, {"synced_every_time"}),
        ({"exchanges": 1.2}, set()),
        ({"largest_share": 1.0}, {"root_only"}),
        (
            {"update_ratio": 4.0, "exchanges": 4.0, "largest_share": 1.0},
            {"undivided", "synced_every_time", "root_only"},
        ),
    ],
)
def test_a_trials_symptoms(found, kinds):
    verdict = verdict_of(ROW | found)
    assert set(verdict.faults) == kinds
    assert verdict.outcome == (WRONG if kinds else RIGHT)
