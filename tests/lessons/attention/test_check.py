"""What is wrong with an attention is named from its row alone; the exercise is launched and judged."""

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, UNANSWERED
from labkit.engine.run import replay
from lessons import attention
from lessons.attention.exercise import SYMPTOMS, check, verdict_of
from lessons.attention.plan import VARIANTS

pytestmark = pytest.mark.usefixtures("elsewhere")

FAULTS = {
    "right": set(),
    "no_diagonal_mask": {"no_diagonal_mask"},
    "not_rescaled": {"not_rescaled"},
    "square_backward": {"square_backward", "torch_inside"},
    "not_causal": {"not_causal"},
    "square": {"square"},
    "torch_inside": {"square", "square_backward", "torch_inside"},
}
RIGHT_ANSWER = code_of("lessons.attention.solutions.online_softmax")


@pytest.fixture(scope="module")
def rows():
    trial = replay(attention.RECORDED["trial"]).rows
    return {row["variant"]: row for row in trial.to_dict("records")}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_named_by_its_own_fault(rows, variant):
    assert set(verdict_of(rows[variant]).faults) == FAULTS[variant]


def test_what_matches_no_known_fault_is_still_wrong(rows):
    assert set(verdict_of(rows["right"] | {"gradient_error": 0.1}).faults) == {"wrong"}
    assert set(verdict_of(rows["right"] | {"keeps_lse": False}).faults) == {"no_lse"}


def test_the_suspects_are_the_bugs_in_an_order_that_says_nothing():
    assert sorted(attention.suspects()) == sorted(SYMPTOMS) and list(attention.suspects()) != list(SYMPTOMS)


@pytest.mark.slow
def test_an_exercise_is_launched_and_judged():
    assert check("online_softmax").outcome == UNANSWERED
    answers.save("attention.online_softmax", RIGHT_ANSWER)
    assert check("online_softmax").outcome == RIGHT
    answers.save("attention.online_softmax", RIGHT_ANSWER.replace("factor * l", "l"))
    assert "l_not_rescaled" in check("online_softmax").faults
    with pytest.raises(ValueError, match=r"is no exercise; there are .*online_softmax"):
        check("offline")
