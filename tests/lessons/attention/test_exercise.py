"""The check of a student's online softmax: right and wrong answers, each fault by its kind; some in a real launch."""

import json
from dataclasses import replace

import numpy as np
import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from lessons.attention.exercise import OVERFLOW, SETTINGS, check, explain_overflow, judge_online

RIGHT_ANSWER = code_of("lessons.attention.solutions.online_softmax").replace(", strict=True", "")
SKELETON = """
def online_softmax(m, l, o, scores, values):
    ...  # the new maximum, what it makes of l and o, what the tile adds
    return m, l, o
"""

pytestmark = pytest.mark.usefixtures("elsewhere")


def changed(*swaps: tuple[str, str]):
    """Give the right answer's function with some of its text replaced."""
    text = RIGHT_ANSWER
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    scope: dict = {}
    exec(text, scope)
    return scope["online_softmax"]


def judged(function) -> Verdict:
    """Give the verdict on a function's results as they come back from a worker, through JSON."""
    given = [function(*setting) for setting in json.loads(json.dumps(list(SETTINGS.values())))]
    return judge_online(json.loads(json.dumps(given)))


L_PLAIN, O_PLAIN = ("factor * l", "l"), ("factor * old", "old")
GUARD = ("if m_new == -inf:", "if False:")
OWN = ("max(m, *scores)", "max(scores)")
DROPPED = ("for score in scores]", "for score in scores if score > -inf]")


def rounded(kind):
    """Return an online softmax in another precision."""

    def online_softmax(m, l, o, scores, values):  # noqa: E741
        m, l, o, scores, values = kind(m), kind(l), *(np.array(x, kind) for x in (o, scores, values))  # noqa: E741
        new = max(m, scores.max())
        if np.isneginf(new):
            return float(m), float(l), o.tolist()
        factor, weights = np.exp(m - new), np.exp(scores - new)
        return float(new), float(factor * l + weights.sum()), (factor * o + weights @ values).tolist()

    return online_softmax


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (changed(), set()),
        (changed(L_PLAIN), {"l_not_rescaled"}),
        (changed(O_PLAIN), {"o_not_rescaled"}),
        (changed(L_PLAIN, O_PLAIN), {"l_not_rescaled", "o_not_rescaled"}),
        (changed(("factor * l +", "")), {"l_forgotten"}),
        (changed(("factor * old +", "")), {"o_forgotten"}),
        (changed(("exp(m - m_new)", "exp(m_new - m)")), {"nan", "l_upside_down", "o_upside_down"}),
        (changed(OWN), {"own_maximum"}),
        (changed(("exp(score - m_new)", "exp(score - max(scores))")), {"l_own_maximum", "o_own_maximum"}),
        (changed(("return m_new", "return max(scores)")), {"own_maximum"}),
        (changed(("return m_new", "return m")), {"maximum"}),
        (changed(GUARD), {"masked"}),
        (changed(("exp(score - m_new)", "exp(score - m)")), {"overflow", "nan", "l", "o"}),
        (changed(("factor * old + new", "(factor * old + new) / l_new")), {"o_normalised"}),
        (changed(("return m_new, l_new", "return m_new, 1.01 * l_new")), {"l"}),
        (changed(("for column in columns", "for column in [next(columns)] * len(o)")), {"o"}),
        (changed(("    return m, l, o", "    return 0.0, l, o")), {"masked"}),
        (changed(DROPPED), {"o_misaligned"}),
        (changed(DROPPED, ("if score > -inf", "if score != scores[0] or score > -inf")), {"o_misaligned"}),
        (changed(("for score in scores]", "for score in sorted(scores)]")), {"o"}),
        (changed(("exp(score - m_new) for", "(1.0 if score == -inf else exp(score - m_new)) for")), {"l", "o"}),
        (changed(("    if m_new == -inf:", "    if -inf in scores:")), {"maximum", "l", "o"}),
        (changed(("    if m_new == -inf:", "    if m_new == m:")), {"l", "o"}),
        (changed(("max(m, *scores)", "max(m, 0, *scores)"), ("if m_new", "if max(m, *scores)")), {"maximum"}),
        (changed(("    m_new", "    if max(scores) == -inf: return m, l, [0.0] * len(o)\n    m_new")), {"masked"}),
        (changed(("exp(score - m_new)", "2 ** (score - m_new)")), {"l", "o"}),
        (changed(("return m_new, l_new", "return m_new, 1.0001 * l_new")), {"l"}),
        (changed(("return m_new", "return 1.0001 * m_new")), {"maximum"}),
        (rounded(np.float32), set()),
        (rounded(np.float16), {"l", "o"}),
        (lambda m, l, o, scores, values: None, {"form"}),  # noqa: E741
        (lambda m, l, o, scores, values: [m, l], {"form"}),  # noqa: E741
        (lambda m, l, o, scores, values: [m, l, o[:1]], {"form", "maximum"}),  # noqa: E741
        (lambda m, l, o, scores, values: [m, l, sum(o)], {"form"}),  # noqa: E741
        (lambda m, l, o, scores, values: [True, l, o], {"form"}),  # noqa: E741
        (lambda m, l, o, scores, values: [str(m), l, o], {"form"}),  # noqa: E741
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = judged(function)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def faults(function) -> dict[str, str]:
    return judged(function).faults


def test_faults_say_their_numbers():
    rises = "where the maximum rises from 1 to 3, "
    factor = "exp(m_old − m_new) = 0.1353"
    assert faults(changed(O_PLAIN)) == {
        "o_not_rescaled": f"{rises}o is [1.28, 2.178], not [0.1994, 2.826]: the old one is kept as it was, not times "
        f"{factor}"
    }
    assert faults(changed(("factor * l +", ""))) == {
        "l_forgotten": f"{rises}l is 1.45, not 1.788: the old one, times {factor}, is missing"
    }
    upside_down = faults(changed(("exp(m - m_new)", "exp(m_new - m)")))
    assert "the old one is times 7.389, not times exp" in upside_down["l_upside_down"]
    assert upside_down["nan"].startswith("at a row's first tile, m, l and o are [1.5, nan, [nan, nan]]: exp(m_old")
    assert faults(changed(OWN))["own_maximum"] == (
        "where the maximum stays 3, m is 2, the maximum of the tile alone; the row had 3 before"
    )
    assert faults(changed(GUARD))["masked"] == (
        "where all keys are masked, and all before were, nothing may change, yet m, l and o become [-inf, nan, "
        "[nan, nan]]: −inf − (−inf) is nan"
    )
    assert faults(changed(("    return m, l, o", "    return 0.0, l, o")))["masked"].endswith("become [0, 0, [0, 0]]")


def test_two_numbers_that_look_alike_get_more_digits():
    assert faults(changed(("return m_new, l_new", "return m_new, 1.0001 * l_new")))["l"] == (
        "at a row's first tile, l is 1.45011, not 1.44996"
    )
    assert "l is 1.4502, not 1.44996" in faults(rounded(np.float16))["l"]
    assert "is a `return` missing?" in faults(lambda *_: None)["form"]
    assert (
        "o is [0.5392, 2.922], not [-1.572, 1.287]: scores and values are out of step"
        in (faults(changed(DROPPED))["o_misaligned"])
    )


def test_a_finite_row_may_forget_a_masked_tile_only():
    own = changed(("    m_new", "    if max(scores) == -inf: return -inf, 0.0, [0.0, 0.0]\n    m_new"))
    assert judged(own).faults == {
        "masked": "where all keys are masked, nothing may change, yet m, l and o become [-inf, 0, [0, 0]]"
    }


def test_what_overflows_says_so():
    plain = changed(("exp(score - m_new)", "(inf if score > 709 else exp(score))"))
    assert faults(plain)["overflow"] == f"with scores near 1000, m, l and o are [1000, inf, [nan, nan]]: {OVERFLOW}"


def test_a_verdict_is_given_back():
    raised = Verdict("online_softmax", RAISED, {"raised": "a worker raised"}, detail="OverflowError: math range error")
    assert explain_overflow(raised).faults == {"raised": "a worker raised", "overflow": OVERFLOW}
    for verdict in (replace(raised, detail="ZeroDivisionError"), Verdict("online_softmax", UNANSWERED, {}, detail="")):
        assert explain_overflow(verdict) is verdict


def test_answers_in_a_worker():
    answers.save("attention.online_softmax", SKELETON)
    assert check("online_softmax").outcome == UNANSWERED
    answers.save("attention.online_softmax", RIGHT_ANSWER)
    verdict = check("online_softmax")
    assert verdict.outcome == RIGHT, verdict
    answers.save("attention.online_softmax", RIGHT_ANSWER.replace("score - m_new", "score"))
    verdict = check("online_softmax")
    assert verdict.outcome == RAISED and set(verdict.faults) == {"raised", "overflow"}
    assert "attention_online_softmax.py" in verdict.detail
