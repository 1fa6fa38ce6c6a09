"""The check of a student's 1F1B, with real launches: right and wrong answers, each fault by its kind."""

import pytest

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG
from labkit.labs import pipeline
from labkit.labs.pipeline.checks import SETTINGS, SPLITS, judge_schedule, judge_split
from labkit.labs.pipeline.checks import _key as key

RIGHT_ANSWER = """
def one_f_one_b(rank, ranks, micro_batches):
    ahead = min(ranks - 1 - rank, micro_batches)
    steps = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        steps += [f"F{i + ahead}", f"B{i}"]
    return steps + [f"B{i}" for i in range(micro_batches - ahead, micro_batches)]
"""


pytestmark = pytest.mark.usefixtures("elsewhere")


def lists(function):
    return {key((rank, p, m)): function(rank, p, m) for p, m in SETTINGS for rank in range(p)}


def own(rank, ranks, count):
    scope: dict = {}
    exec(RIGHT_ANSWER, scope)
    return scope["one_f_one_b"](rank, ranks, count)


def gpipe(rank, ranks, count):
    return [f"{kind}{i}" for kind in "FB" for i in range(count)]


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (own, set()),
        (gpipe, {"memory"}),
        (lambda rank, ranks, count: own(rank, ranks, count)[:-1], {"incomplete"}),
        (lambda rank, ranks, count: own(rank, ranks, count)[::-1], {"deadlock"}),
        (lambda rank, ranks, count: [f"{k}{i}" for i in range(count) for k in "FB"], {"slow"}),
        (lambda rank, ranks, count: None, {"incomplete"}),
        (lambda rank, ranks, count: [0, "X1", "F"], {"incomplete"}),
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = judge_schedule(lists(function))
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def test_splits_by_their_kind():
    best = dict(zip(map(key, SPLITS), ([2, 2], [3, 1], [1, 2, 3], [2, 2, 1, 3]), strict=True))
    assert judge_split(best).outcome == RIGHT, judge_split(best)
    assert set(judge_split(best | {key(SPLITS[0]): [1, 3]}).faults) == {"balance"}
    assert set(judge_split(best | {key(SPLITS[0]): [4]}).faults) == {"sum"}
    assert set(judge_split(best | {key(SPLITS[0]): "2-2"}).faults) == {"form"}


def test_answers_in_a_worker():
    assert pipeline.check("one_f_one_b").outcome == UNANSWERED
    answers.save("pipeline.one_f_one_b", RIGHT_ANSWER)
    verdict = pipeline.check("one_f_one_b")
    assert verdict.outcome == RIGHT, verdict
    answers.save("pipeline.one_f_one_b", "def one_f_one_b(rank, ranks, micro_batches):\n    return 1 / 0\n")
    verdict = pipeline.check("one_f_one_b")
    assert verdict.outcome == RAISED
    assert "pipeline_one_f_one_b.py" in verdict.detail
    answers.save(
        "pipeline.one_f_one_b", "def one_f_one_b(rank, ranks, micro_batches):\n    while True:\n        pass\n"
    )
    assert pipeline.check("one_f_one_b", patience_s=4).outcome == HUNG


def test_an_unknown_exercise_names_those_there_are():
    with pytest.raises(ValueError, match="'gpipe' is no exercise; there are one_f_one_b, balanced_split"):
        pipeline.check("gpipe")
