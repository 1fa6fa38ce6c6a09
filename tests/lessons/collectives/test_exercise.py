"""The check of a student's ring: right and wrong answers, each fault by its kind; some in a real launch."""

import json
from itertools import product

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from lessons import collectives
from lessons.collectives.exercise import RINGS, SETTINGS, judge_ring

RIGHT_ANSWER = code_of("lessons.collectives.solutions.ring_step")

pytestmark = pytest.mark.usefixtures("elsewhere")


def judged(function) -> Verdict:
    """Give the verdict on a function's results as they come back from a worker, through JSON."""
    return judge_ring(json.loads(json.dumps([function(*setting) for setting in SETTINGS])))


def right(r, s, n):
    return (r - s) % n, (r - s - 1) % n, s < n - 1


CASES = {
    "right": (right, set()),
    "any numbering": (lambda r, s, n: ((r - s + 1) % n, (r - s) % n, s < n - 1), set()),
    "from the wrong side": (lambda r, s, n: ((r + s) % n, (r + s + 1) % n, s < n - 1), {"direction"}),
    "one number for both": (lambda r, s, n: ((r - s) % n, (r - s) % n, s < n - 1), {"mismatch"}),
    "up, not down": (lambda r, s, n: ((r + s) % n, (r + s - 1) % n, s < n - 1), {"overwritten"}),
    "always adds": (lambda r, s, n: (*right(r, s, n)[:2], True), {"twice"}),
    "adds once too often": (lambda r, s, n: (*right(r, s, n)[:2], s < n), {"twice"}),
    "never adds": (lambda r, s, n: (*right(r, s, n)[:2], False), {"replaced"}),
    "adds once too seldom": (lambda r, s, n: (*right(r, s, n)[:2], s < n - 2), {"replaced"}),
    "always its own chunk": (lambda r, s, n: (r, (r - 1) % n, s < n - 1), {"twice"}),
    "stops half way": (lambda r, s, n: right(r, s, n) if s < n - 1 else None, {"no_gather"}),
    "begins again": (lambda r, s, n: (*right(r, s % (n - 1), n)[:2], s < n - 1), {"overwritten"}),
    "the same chunk round": (
        lambda r, s, n: (
            right(r, s, n) if s < n - 1 else (*right(r, n - 1, n)[:2], False) if s == n - 1 else ((r + 1) % n, r, False)
        ),
        {"unfinished"},
    ),
    "no modulo": (lambda r, s, n: (r - s, r - s - 1, s < n - 1), {"range"}),
    "right for three only": (lambda r, s, n: ((r - s) % 3, (r - s - 1) % 3, s < n - 1), {"range", "mismatch"}),
    "mod one fewer": (lambda r, s, n: ((r - s) % max(1, n - 1), (r - s - 1) % max(1, n - 1), s < n - 1), {"mismatch"}),
    "half of the steps add": (lambda r, s, n: (*right(r, s, n)[:2], s < n // 2), {"replaced"}),
    "adds in every other step": (lambda r, s, n: (*right(r, s, n)[:2], s % 2 == 0), {"replaced"}),
    "sent and received swapped": (lambda r, s, n: (*right(r, s, n)[1::-1], s < n - 1), {"direction"}),
    "receives what it sends next but one": (lambda r, s, n: ((r - s) % n, (r - s - 2) % n, s < n - 1), {"direction"}),
    "from the rank before always": (lambda r, s, n: ((r - s) % n, (r - 1) % n, s < n - 1), {"mismatch"}),
    "by the rank's own number": (lambda r, s, n: ((s - r) % n, (s - r - 1) % n, s < n - 1), {"direction", "mismatch"}),
    "the other phase first": (lambda r, s, n: (*right(r, s, n)[:2], s >= n - 1), {"replaced"}),
    "rank 0 only": (lambda r, s, n: right(r, s, n) if r == 0 else right(0, s, n), {"mismatch"}),
    "whole chunks from 0 on": (
        lambda r, s, n: right(r, s, n) if s < n - 1 else ((r - s - 1) % n, (r - s - 2) % n, False),
        {"overwritten"},
    ),
    "a dict": (lambda r, s, n: dict(zip("abc", right(r, s, n), strict=True)), {"form"}),
    "two values": (lambda r, s, n: right(r, s, n)[:2], {"form"}),
    "none": (lambda r, s, n: None, {"form"}),
    "floats": (lambda r, s, n: (0.0, 1.0, True), {"form"}),
    "booleans for chunks": (lambda r, s, n: (True, False, True), {"form"}),
    "a number for whether": (lambda r, s, n: (*right(r, s, n)[:2], 1), {"form"}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_by_its_kind(name):
    function, kinds = CASES[name]
    verdict = judged(function)
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert set(verdict.faults) <= kinds and bool(verdict.faults) == bool(kinds), verdict
    assert bool(verdict.merits) == (not kinds)


@pytest.mark.parametrize(("ranks", "part"), [*product((4, 5), (0, 1)), (2, 2)])
def test_one_slip_in_one_ring_is_found(ranks, part):
    def slipped(rank, step, n):
        move = [*right(rank, step, n)]
        if (rank, n) == (n - 1, ranks) and step == n - 2:
            move[part] = not move[2] if part == 2 else (move[part] + 1) % n
        return move

    assert len(judged(slipped).faults) == 1


def test_faults_say_where_and_what():
    def said(name):
        return next(iter(judged(CASES[name][0]).faults.values()))

    assert said("from the wrong side") == (
        "with 3 ranks, at step 0, rank 2 sends chunk 2, but rank 0 takes it for chunk 1, which rank 1 sends: a rank "
        "receives from the rank before it, not after"
    )
    assert said("always adds").endswith(
        "at step 2, rank 0's chunk 0 gets the values of rank 0 a second time: from here on what arrives is whole and "
        "replaces what is there"
    )
    assert "a second time: the chunk to send next is the one that came in the step before" in said(
        "always its own chunk"
    )
    assert "lost: in the first 2 steps it is added" in said("never adds")
    assert "rank 0 does nothing: a rank has one whole chunk after 2 steps" in said("stops half way")
    assert said("none").endswith("and whether to add: is a `return` missing?")
    assert "names the chunks 0 and -1: there are 0 to 2" in said("no modulo")
    assert "of 9 chunks are whole after all 4 steps" in said("the same chunk round")


def test_every_ring_is_asked_for_all_its_steps():
    assert len(SETTINGS) == len(set(SETTINGS)) == sum(2 * (n - 1) * n for n in RINGS)


def test_answers_in_a_worker():
    assert collectives.check("ring_step").outcome == UNANSWERED
    answers.save("collectives.ring_step", RIGHT_ANSWER)
    assert collectives.check("ring_step").outcome == RIGHT
    answers.save("collectives.ring_step", RIGHT_ANSWER.replace("rank - step", "rank + step"))
    assert collectives.check("ring_step").outcome == WRONG
    answers.save("collectives.ring_step", RIGHT_ANSWER.replace("rank - step", "1 // 0"))
    assert collectives.check("ring_step").outcome == RAISED
    with pytest.raises(ValueError, match="there are bus_bandwidth, ring_step"):
        collectives.check("ring")
