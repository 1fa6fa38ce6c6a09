"""The check of a student's buckets: right and wrong answers, each fault by its kind.

`tests/lessons/slips.py` has more of them.
"""

import pytest
import torch
import torch.distributed as dist

from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, WRONG
from lessons import ddp_fsdp
from lessons.ddp_fsdp.exercises import judge, verdict_of

RIGHT_ANSWER = code_of("lessons.ddp_fsdp.solutions.buckets")
MODELS = ddp_fsdp.check.by_name["buckets"].inputs


pytestmark = pytest.mark.usefixtures("elsewhere")


def own(sizes, first, cap):
    scope: dict = {}
    exec(RIGHT_ANSWER, scope)
    return scope["buckets"](sizes, first, cap)


def by_count(sizes, first, cap):
    """Fill each bucket with as many parameters, whatever their bytes."""
    numbers = [*reversed(range(len(sizes)))]
    return [numbers[at : at + 2] for at in range(0, len(numbers), 2)]


def never_emptied(sizes, first, cap):
    """Keep adding to what was held before the bucket was closed."""
    filled, held, room = [[]], 0, first
    for number in reversed(range(len(sizes))):
        if held >= room:
            filled.append([])
            room = cap
        filled[-1].append(number)
        held += sizes[number]
    return filled


def carried(sizes, first, cap):
    """Carry what was too much over into the next bucket."""
    filled, held, room = [[]], 0, first
    for number in reversed(range(len(sizes))):
        if held >= room:
            filled.append([])
            held, room = held - room, cap
        filled[-1].append(number)
        held += sizes[number]
    return filled


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (own, set()),
        (lambda sizes, first, cap: [], {"missing"}),
        (lambda sizes, first, cap: own(sizes, first, cap)[1:], {"missing"}),
        (lambda sizes, first, cap: [*own(sizes, first, cap), [0]], {"missing"}),
        (lambda sizes, first, cap: [[i + 1 for i in one] for one in own(sizes, first, cap)], {"missing"}),
        (lambda sizes, first, cap: [*own(sizes, first, cap), []], {"empty"}),
        (lambda sizes, first, cap: own(sizes, cap, cap), {"late"}),
        (lambda sizes, first, cap: [[*range(len(sizes))][::-1]], {"late"}),
        (lambda sizes, first, cap: [[i] for i in reversed(range(len(sizes)))], {"early"}),
        (lambda sizes, first, cap: [one[::-1] for one in own(sizes, first, cap)], {"order"}),
        (lambda sizes, first, cap: own(sizes, first, cap)[::-1], {"order"}),
        (lambda sizes, first, cap: own(sizes[::-1], first, cap), {"early", "late"}),
        (by_count, {"early", "late"}),
        (never_emptied, {"early"}),
        (carried, {"early"}),
        (lambda sizes, first, cap: [[[i] for i in one] for one in own(sizes, first, cap)], {"form"}),
        (lambda sizes, first, cap: [list(map(float, one)) for one in own(sizes, first, cap)], {"form"}),
        (lambda sizes, first, cap: [[sizes[i] for i in one] for one in own(sizes, first, cap)], {"missing"}),
        (lambda sizes, first, cap: [i for one in own(sizes, first, cap) for i in one], {"form"}),
        (
            lambda sizes, first, cap: [one for one in own(sizes, first, cap) if sum(sizes[i] for i in one) >= first],
            {"missing"},
        ),
        (lambda sizes, first, cap: [[True, False]], {"form"}),
        (lambda sizes, first, cap: None, {"form"}),
        (lambda sizes, first, cap: float("nan"), {"form"}),
        (lambda sizes, first, cap: len(sizes), {"form"}),
        (lambda sizes, first, cap: [0, 1], {"form"}),
        (lambda sizes, first, cap: [["0", "1"]], {"form"}),
        (lambda sizes, first, cap: {"0": [1]}, {"form"}),
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = judge([function(*setting) for setting in MODELS], MODELS)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)
    assert all("`buckets([" in sentence for sentence in verdict.faults.values())


@pytest.mark.parametrize("setting", MODELS, ids=lambda setting: f"{len(setting[0])} gradients")
def test_the_right_answer_is_torchs(setting):
    sizes, first, cap = setting
    ready = [torch.empty(size, dtype=torch.uint8, device="meta") for size in reversed(sizes)]
    numbers = list(reversed(range(len(sizes))))
    made, _ = dist._compute_bucket_assignment_by_size(ready, [first, cap], [False] * len(ready), numbers)
    assert sorted(made, reverse=True) == own(sizes, first, cap)


def test_an_unknown_exercise_names_those_there_are():
    with pytest.raises(ValueError, match="'shards' is no exercise; there are sharded_layer, sent_bytes, buckets"):
        ddp_fsdp.check("shards")


SYMPTOMS = {
    "variant": "a",
    "ranks": 4,
    "distinct": 1.0,
    "repeated": 0.1,
    "update_ratio": 1.0,
    "update_error": 1e-6,
    "raised": "",
}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"distinct": 0.25, "update_error": 0.9}, {"no_sampler"}),
        ({"update_ratio": 4.0, "update_error": 3.0}, {"summed"}),
        ({"update_ratio": 2.0, "update_error": 1.0}, {"wrong"}),
        ({"repeated": 1.0}, {"no_set_epoch"}),
        ({"raised": "Expected to", "distinct": float("nan")}, {"unused_parameter"}),
        ({"update_error": 0.01}, {"wrong"}),
    ],
)
def test_symptoms_name_the_bug(change, kinds):
    verdict = verdict_of(SYMPTOMS | change)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
