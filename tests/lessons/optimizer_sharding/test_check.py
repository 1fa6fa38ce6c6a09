"""The check of a student's shards: right and wrong answers, each fault by its kind; one in a real launch."""

import json

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from lessons import optimizer_sharding
from lessons.optimizer_sharding.exercises import SETTINGS, judge_shards, verdict_of

pytestmark = pytest.mark.usefixtures("elsewhere")

RIGHT_ANSWER = code_of("lessons.optimizer_sharding.solutions.shards")
SKELETON = """
def shards(sizes, ranks):
    parts = [[] for _ in range(ranks)]
    ...  # lay the parameters end to end, and cut
    return parts
"""


def own(sizes, ranks):
    scope: dict = {}
    exec(RIGHT_ANSWER, scope)
    return scope["shards"](sizes, ranks)


def by_number(sizes, ranks):
    return [[(number, 0, sizes[number]) for number in range(rank, len(sizes), ranks)] for rank in range(ranks)]


def greedy(sizes, ranks):
    parts, held = [[] for _ in range(ranks)], [0] * ranks
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        rank = held.index(min(held))
        parts[rank].append((number, 0, sizes[number]))
        held[rank] += sizes[number]
    return parts


def rounded_down(sizes, ranks):
    """Cut at total // ranks, and leave what is over to the last."""
    share, parts, at = max(1, sum(sizes) // ranks), [[] for _ in range(ranks)], 0
    for number, size in enumerate(sizes):
        for element in range(size):
            rank = min(ranks - 1, at // share)
            if parts[rank] and parts[rank][-1][0] == number:
                parts[rank][-1] = (number, parts[rank][-1][1], element + 1)
            else:
                parts[rank].append((number, element, element + 1))
            at += 1
    return parts


def each_parameter(sizes, ranks):
    """Cut every parameter into equal parts, rounded down."""
    return [
        [(n, rank * (size // ranks), (rank + 1) * (size // ranks)) for n, size in enumerate(sizes)]
        for rank in range(ranks)
    ]


def repeated(sizes, ranks):
    """Make the list of lists with `[[]] * ranks`: one list, which every rank has."""
    parts = [[]] * ranks
    for rank, pieces in enumerate(own(sizes, ranks)):
        parts[rank].extend(pieces)
    return parts


def dealt(sizes, ranks):
    """Deal single elements out in turn."""
    elements = [(number, at, at + 1) for number, size in enumerate(sizes) for at in range(size)]
    return [elements[rank::ranks] for rank in range(ranks)]


def few(function):
    """Give a function that is too slow for large sizes, and right there."""
    return lambda sizes, ranks: function(sizes, ranks) if sum(sizes) < 10**6 else own(sizes, ranks)


def changed(function, change):
    return lambda sizes, ranks: change(function(sizes, ranks))


@pytest.mark.parametrize(
    ("function", "kinds", "words"),
    [
        (own, set(), ""),
        (changed(own, lambda parts: parts[::-1]), set(), ""),
        (by_number, {"uneven"}, "parameters are dealt out by their number"),
        (greedy, {"uneven"}, "no parameter is cut, and one alone has 10"),
        (few(rounded_down), {"uneven"}, "one rank gets all that is left over"),
        (each_parameter, {"missing", "empty"}, "has no owner"),
        (changed(own, lambda parts: [*parts[:-1], []]), {"missing"}, "it would never change"),
        (changed(own, lambda parts: [parts[0], *parts[:-1]]), {"twice"}, "has two owners"),
        (changed(own, lambda parts: parts[0]), {"form"}, "a piece is 0, not"),
        (changed(own, lambda parts: [1, 2]), {"form"}, "not a list per rank"),
        (changed(own, lambda parts: [[number for number, *_ in part] for part in parts]), {"form"}, "(parameter"),
        (changed(own, lambda parts: [[(n, 0.0, b) for n, _, b in part] for part in parts]), {"form"}, "whole numbers"),
        (changed(own, lambda parts: [[piece for part in parts for piece in part]]), {"ranks"}, "it returns 1 list,"),
        (changed(own, lambda parts: [[(n + 1, a, b) for n, a, b in part] for part in parts]), {"bounds"}, "the last"),
        (changed(own, lambda parts: [[(n, a, b + 1) for n, a, b in part] for part in parts]), {"bounds"}, "which has"),
        (changed(own, lambda parts: [[*part, (0, 0, 0)] for part in parts]), {"empty"}, "is empty"),
        (lambda sizes, ranks: None, {"form"}, "it returns None, not a list per rank: is a `return` missing?"),
        (repeated, {"alias"}, "`[[]] * ranks` repeats one list"),
        (few(dealt), set(), ""),
        (few(changed(dealt, lambda parts: [*parts[:-1], parts[-1][:-1]])), {"missing"}, "it would never change"),
        (changed(own, lambda parts: dict(enumerate(parts))), {"form"}, "not a list per rank"),
        (changed(own, lambda parts: [[(n, a, b - 1) for n, a, b in part] for part in parts]), {"empty", "missing"}, ""),
        (changed(own, lambda parts: [[(n, a, b - a) for n, a, b in part] for part in parts]), {"bounds", "empty"}, ""),
        (changed(own, lambda parts: [[(n, False, b) for n, _, b in part] for part in parts]), {"form"}, "three"),
        (lambda sizes, ranks: own(sizes, ranks + 1)[:ranks], {"missing"}, "has no owner"),
        (lambda sizes, ranks: [*own(sizes, ranks), []], {"ranks"}, "lists, and"),
        (lambda sizes, ranks: [*own(sizes, max(1, ranks - 1)), []], {"uneven"}, ""),
    ],
)
def test_each_fault_by_its_kind(function, kinds, words):
    given = [function(*setting) for setting in json.loads(json.dumps(SETTINGS))]
    verdict = judge_shards(json.loads(json.dumps(given)), SETTINGS)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert words in " ".join(verdict.faults.values())
    assert bool(verdict.merits) == (not kinds)


def test_answers_in_a_worker():
    answers.save("optimizer_sharding.shards", SKELETON)
    assert optimizer_sharding.check("shards").outcome == UNANSWERED
    answers.save("optimizer_sharding.shards", RIGHT_ANSWER)
    verdict = optimizer_sharding.check("shards")
    assert verdict.outcome == RIGHT, verdict
    answers.save("optimizer_sharding.shards", RIGHT_ANSWER.replace("return parts", "return parts[ranks]"))
    assert optimizer_sharding.check("shards").outcome == RAISED
    with pytest.raises(ValueError, match="'cuts' is no exercise; there are gathered, shards"):
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
