"""What is wrong with replicas is named from their symptoms alone; the exercise is launched and judged."""

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.exercises import SYMPTOMS, check, verdict_of

pytestmark = pytest.mark.usefixtures("elsewhere")

HEALTHY = {
    "variant": "a",
    "error_rank_0": 1e-7,
    "error_worst": 1e-7,
    "error_later": 1e-7,
    "collectives": 4,
    "expected": 4,
    "largest_mib": 2.5,
    "bucket_mb": 2.0,
    "before_last_gradient": 3,
}
RIGHT_ANSWER = code_of("lessons.ddp_from_scratch.solutions.best_count")


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"error_worst": 0.6, "error_later": 0.6}, {"one_rank"}),
        ({"error_worst": 0.6, "error_later": 0.6, "error_rank_0": 0.6}, {"wrong"}),
        ({"error_worst": 0.6, "error_rank_0": 0.6}, {"unwaited"}),
        ({"collectives": 1, "before_last_gradient": 0}, {"bucket_size"}),
        ({"collectives": 9, "error_worst": 0.6, "error_later": 0.6}, {"bucket_size", "one_rank"}),
    ],
)
def test_symptoms_name_the_bug(change, kinds):
    verdict = verdict_of(HEALTHY | change)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def test_the_suspects_are_the_bugs_in_an_order_that_says_nothing():
    assert sorted(ddp.suspects()) == sorted(SYMPTOMS) and list(ddp.suspects()) != list(SYMPTOMS)


def test_an_exercise_is_launched_and_judged():
    assert check("best_count").outcome == UNANSWERED
    answers.save("ddp_from_scratch.best_count", RIGHT_ANSWER)
    verdict = check("best_count")
    assert verdict.outcome == RIGHT, verdict
    answers.save("ddp_from_scratch.best_count", RIGHT_ANSWER.replace("0.5", "'0.5'"))
    verdict = check("best_count")
    assert verdict.outcome == RAISED and "ddp_from_scratch_best_count.py" in verdict.detail
    with pytest.raises(ValueError, match=r"is no exercise; there are .*exchange"):
        check("ended")
