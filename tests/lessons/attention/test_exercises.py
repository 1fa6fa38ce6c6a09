"""Lab 08's exercises: right answers pass, each typical mistake is named; a bug is named from its row alone."""

import json
import math

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, WRONG
from lessons import attention
from lessons.attention.exercises import judge_online

pytestmark = pytest.mark.usefixtures("elsewhere")

CASES = attention.check.by_name["online_softmax"].inputs
RIGHT_ANSWER = code_of("lessons.attention.solutions.online_softmax").replace(", strict=True", "")


def judged(*swaps: tuple[str, str]):
    """Give the verdict on the right answer with some of its text replaced; results come back through JSON."""
    text = RIGHT_ANSWER
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    scope: dict = {}
    exec(text, scope)
    return judge_online(json.loads(json.dumps([scope["online_softmax"](*case) for case in CASES])), CASES)


@pytest.mark.parametrize(
    ("swaps", "kinds"),
    [
        ([], set()),
        ([("factor * l +", "l +"), ("factor * old", "old")], {"not_rescaled"}),
        ([("factor * l +", "")], {"l_forgotten"}),
        ([("factor * old +", "")], {"o_forgotten"}),
        ([("factor * old + new", "(factor * old + new) / l_new")], {"divided"}),
        ([("return m_new, l_new", "return m_new, 1.001 * l_new")], {"wrong"}),
        ([("return m_new, l_new, [", "return m_new, [")], {"wrong"}),
        ([("    return m_new", "    return None\n    return m_new")], {"form"}),
    ],
)
def test_each_mistake_by_its_kind(swaps, kinds):
    verdict = judged(*swaps)
    assert set(verdict.faults) == kinds, verdict
    assert (verdict.outcome, bool(verdict.merits)) == ((WRONG, False) if kinds else (RIGHT, True))


def test_cases_hold_what_decides():
    masked = [case for case in CASES if -math.inf in case[3]]
    assert any(case[0] == -math.inf for case in masked) and any(max(case[3]) == -math.inf for case in masked)
    assert any(min(case[3]) > 900 for case in CASES) and any(max(case[3]) < -900 for case in CASES)


def test_an_overflow_in_a_worker_is_named():
    answers.save("attention.online_softmax", RIGHT_ANSWER.replace("score - m_new", "score"))
    verdict = attention.check("online_softmax")
    assert verdict.outcome == RAISED and set(verdict.faults) == {"raised", "overflow"}
