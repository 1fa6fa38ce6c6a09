"""The check of a student's order of buckets: right and wrong answers, each fault by its kind.

`tests/lessons/slips.py` has more of them.
"""

import json

import pytest

from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, WRONG, Verdict
from lessons.ddp_from_scratch.exercises import SETTINGS, judge_started

SOLUTION = code_of("lessons.ddp_from_scratch.solutions.started")
FULL = "set(buckets[sent]) <= arrived"
WHEN_FULL = """full = [max(map([*arrivals, *range(9)].index, bucket)) for bucket in buckets]
    return [[number for number, at in enumerate(full) if at == place] for place in range(len(arrivals))]"""
EVERYTHING_LAST = "return [*starts[:-1], [*starts[-1], *range(sent, len(buckets))]]"
AT_THE_END = "return [[]] * (len(starts) - 1) + [sum(starts, [])]"


def judged(*swaps: tuple[str, str]) -> Verdict:
    """Give the verdict on the solution with some of its text replaced; results come back through JSON."""
    text = SOLUTION
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    scope: dict = {}
    exec(text, scope)
    settings = json.loads(json.dumps(list(SETTINGS.values())))
    return judge_started(json.loads(json.dumps([scope["started"](*setting) for setting in settings])), settings)


@pytest.mark.parametrize(
    ("swaps", "kinds"),
    [
        ([], set()),
        ([("while", "if")], {"late", "missing"}),
        ([("while", "if"), (FULL, "weight in buckets[sent]")], {"early", "missing"}),
        ([(FULL, f"{FULL} and len(starts[-1]) < 2")], {"late"}),
        ([("while", "if"), (FULL, "sum(map(len, buckets[: sent + 1])) <= len(arrived)")], {"early"}),
        ([(FULL, "buckets[sent][-1] in arrived")], {"early"}),
        ([("            sent += 1", "            sent += 1\n            arrived = set()")], {"missing"}),
    ],
)
def test_a_bucket_that_is_taken_for_full_too_early_or_late(swaps, kinds):
    verdict = judged(*swaps)
    assert set(verdict.faults) == kinds, verdict
    assert (verdict.outcome, bool(verdict.merits)) == ((WRONG, False) if kinds else (RIGHT, True))


@pytest.mark.parametrize(
    ("returned", "kinds"),
    [
        (WHEN_FULL, {"order"}),
        ("return [now[::-1] for now in starts]", {"order"}),
        (AT_THE_END, {"late"}),
        (EVERYTHING_LAST, {"early"}),
        ("return [*starts[:-1], [*starts[-1], 0]]", {"twice"}),
        ("return [now[:1] for now in starts]", {"missing"}),
        ("return [[], *starts[:-1]]", {"late", "missing"}),
        ("return [[] for _ in arrivals]", {"missing"}),
        ("return [[number + 1 for number in now] for now in starts]", {"early", "order"}),
        ("return [[-1], *starts[1:]]", {"unknown"}),
        ("return starts[1:]", {"form"}),
        ("return [[buckets[number] for number in now] for now in starts]", {"form"}),
        ("return [buckets[number] for now in starts for number in now]", {"form", "early"}),
        ("return [len(now) for now in starts]", {"form"}),
        ("return [['0'] for _ in arrivals]", {"form"}),
        ("return [[True] for _ in arrivals]", {"form"}),
        ("return None", {"form"}),
        ("return float('nan')", {"form"}),
    ],
)
def test_a_result_of_another_order_or_form(returned, kinds):
    verdict = judged(("return starts", returned))
    assert set(verdict.faults) == kinds, verdict
    assert (verdict.outcome, bool(verdict.merits)) == (WRONG, False)


def test_faults_say_where_and_why():
    part = "with bucket 1 full before bucket 0, when gradient 0 arrives, bucket 1 is sent before bucket 0. Another"
    assert part in judged(("return starts", WHEN_FULL)).faults["order"]
    (early,) = judged(("return starts", EVERYTHING_LAST)).faults.values()
    assert early == (
        "for `started([[4], [3, 2], [1], [0]], [4, 2, 1, 0])`, with a weight that gets no gradient, when gradient 0 "
        "arrives, bucket 1 is sent without gradient 3"
    )
    late = judged(("return starts", AT_THE_END)).faults["late"]
    assert "with gradients from the last to the first, when gradient 4" in late
    assert "bucket 1 is full and never sent" in judged(("while", "if")).faults["missing"]
    assert "one per arrival" in judged(("return starts", "return None")).faults["form"]


def test_a_fault_names_the_setting_that_the_notebook_shows_and_numbers_others():
    shown = SETTINGS["with bucket 1 full before bucket 0"]
    said = judge_started([[[], [1], [], [0]]] * 2, json.loads(json.dumps([([[1], [0]], [0, 1]), shown]))).faults
    assert "in case 1" in said["form"] and "with bucket 1 full before bucket 0" in said["order"]
