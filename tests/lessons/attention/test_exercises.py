"""Lab 08's exercises: right answers pass, each typical mistake is named; a right tile runs, is compared and timed."""

import json
import math
from random import Random

import pytest
import torch

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, WRONG
from labkit.launching import launch
from lessons import attention
from lessons.attention.exercises import judge_run, judge_tile
from lessons.attention.worker.tried import drive

pytestmark = pytest.mark.usefixtures("elsewhere")

CASES = attention.check.by_name["add_tile"].inputs
RIGHT_ANSWER = code_of("lessons.attention.worker.plain.add_tile")


def judged(*swaps: tuple[str, str]):
    """Give the verdict on the right answer with some of its text replaced; results come back through JSON."""
    text = RIGHT_ANSWER
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    scope: dict = {"torch": torch}
    exec(text, scope)
    return judge_tile(json.loads(json.dumps([[drive(scope["add_tile"], None, *case)] for case in CASES])), CASES)


@pytest.mark.parametrize(("precision", "outcome"), [("float32", RIGHT), ("bfloat16", WRONG), ("float16", WRONG)])
def test_a_tile_may_compute_in_float32_and_no_less_for_every_student(precision, outcome):
    cast = f"    m, l, o, s, v = (each.to(torch.{precision}) for each in (m, l, o, s, v))\n    m_new ="
    scope: dict = {"torch": torch}
    exec(RIGHT_ANSWER.replace("    m_new =", cast, 1), scope)
    for student in range(200):
        cases = attention.check.by_name["add_tile"].cases.make(Random(student))
        given = [[drive(scope["add_tile"], None, *case)] for case in cases]
        assert judge_tile(json.loads(json.dumps(given)), cases).outcome == outcome, student


FACTORS = [("factor * l +", "l +"), ("factor[..., None] * o +", "o +")]


@pytest.mark.parametrize(
    ("swaps", "kinds"),
    [
        ([], set()),
        (FACTORS, {"not_rescaled"}),
        (FACTORS[:1], {"l_not_rescaled"}),
        (FACTORS[1:], {"o_not_rescaled"}),
        ([("factor * l +", "")], {"l_forgotten"}),
        ([("factor[..., None] * o +", "")], {"o_forgotten"}),
        (
            [
                ("p @ v", "p @ v) / (factor * l + p.sum(-1))[..., None]"),
                ("factor[..., None] * o", "(factor[..., None] * o"),
            ],
            {"divided"},
        ),
        ([("torch.maximum(m, s.amax(-1))", "s.amax(-1)")], {"own_maximum", "wrong"}),
        ([("(m - m_new)", "(m_new - m)")], {"upside_down", "wrong"}),
        ([("(s - m_new[..., None])", "(s - m[..., None])")], {"wrong"}),
        ([("factor * l + p.sum(-1)", "1.001 * (factor * l + p.sum(-1))")], {"wrong"}),
        ([("p.sum(-1)", "p.sum(-1, keepdim=True)")], {"form"}),
        ([("return m_new, ", "return ")], {"form"}),
        ([("    return m_new", "    return None\n    return m_new")], {"form"}),
    ],
)
def test_each_mistake_by_its_kind(swaps, kinds):
    verdict = judged(*swaps)
    assert set(verdict.faults) == kinds, verdict
    assert (verdict.outcome, bool(verdict.merits)) == ((WRONG, False) if kinds else (RIGHT, True))


def test_cases_hold_what_decides():
    masked = [row for _, _, _, _, scores, _ in CASES for row in scores if -math.inf in row]
    assert any(max(row) == -math.inf for row in masked) and any(max(row) > -math.inf for row in masked)
    largest = [max(map(max, scores)) for _, _, _, _, scores, _ in CASES]
    assert max(largest) > 900 and min(largest) < -900


def test_a_right_tile_is_compared_with_float64_and_timed_and_stands_in_the_race():
    answers.save("attention.add_tile", f"import torch\n\n{RIGHT_ANSWER}")
    verdict = attention.check("add_tile")
    assert verdict.outcome == RIGHT, verdict
    assert "of the tolerance" in verdict.merits[1] and "with your tiles" in verdict.merits[2]
    file = attention.yours("add_tile")
    plan = attention.Race.small(seeds=(0,), sequences=(16, 2048), implementations=("plain",), yours=file)
    assert [(knobs["implementation"], knobs["sequence"]) for knobs in plan.knobs()] == [
        ("plain", 16),
        ("yours", 16),
        ("plain", 2048),
    ]


def test_tiles_that_are_wrong_for_heads_alone_are_off_in_the_lesson_s_own_shapes(tmp_path):
    swapped = RIGHT_ANSWER.replace("    m_new = ", "    if s.dim() > 2:\n        v = v.flip(0)\n    m_new = ", 1)
    (file := tmp_path / "attention_add_tile.py").write_text(f"import torch\n\n{swapped}")
    run = launch(attention.Errors.small(seeds=(0,), yours=str(file), implementations=()), progress=False)
    assert [*judge_run(run).faults] == ["error"]
