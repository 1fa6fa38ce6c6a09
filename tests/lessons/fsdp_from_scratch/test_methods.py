"""A student's methods run in the classes on real ranks: right ones, and each wrong one by its kind."""

import dataclasses

import pytest

from labkit.course import answers
from labkit.course.verdict import RIGHT, UNANSWERED, WRONG, Verdict
from lessons.fsdp_from_scratch.exercises import check
from lessons.fsdp_from_scratch.judged import judge_backward

pytestmark = pytest.mark.usefixtures("elsewhere")

BACKWARD = """
import torch.distributed as dist

def backward_begins(self):
    self.gather()

def backward_ends(self):
    for flat in self.trained:
        gradients = flat.gradients() / flat.ranks
        part = gradients.new_empty(flat.shard.numel())
        dist.reduce_scatter_tensor(part, gradients, group=flat.group)
        flat.add(part)
    self.free()
"""
CLIP = """
import torch
import torch.distributed as dist

def clip(self, most):
    gradients = [shard.grad for shard in self.shards if shard.grad is not None]
    square = torch.zeros((), device=self.device)
    for gradient in gradients:
        square += gradient.square().sum()
    dist.all_reduce(square, group=self.group)
    length = square.sqrt()
    for gradient in gradients:
        gradient *= (most / length).clamp(max=1)
    return length
"""
SUM = "    dist.all_reduce(square, group=self.group)\n"
LENGTH = SUM + "    length = square.sqrt()\n"
CASES = [(2, "plain", 0.1), (3, "accumulation", 0.5), (4, "frozen", 1000.0)]


def judged(name: str, code: str) -> Verdict:
    """Give the verdict of the check, with a few of its cases, and without the run that it launches."""
    answers.save(f"fsdp_from_scratch.{name}", code)
    inputs = [(ranks, name, case, 1, most) for ranks, case, most in CASES]
    return check._verdict(dataclasses.replace(check.by_name[name], inputs=inputs, trial=None), 20.0, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("    self.gather()\n", "    pass\n", "not_gathered"),
        (" / flat.ranks", "", "summed"),
        ("        flat.add(part)", "        flat.add(part / flat.ranks)", "divided_twice"),
        ("    self.free()\n", "", "kept"),
        ("flat.add(part)", "flat.shard.grad = part", "overwritten"),
        ("        flat.add(part)\n", "", "no_gradient"),
        (
            "dist.reduce_scatter_tensor(part, gradients, group=flat.group)",
            "part = gradients.chunk(flat.ranks)[dist.get_rank(flat.group)]",
            "silent",
        ),
        (
            "dist.reduce_scatter_tensor(part, gradients, group=flat.group)",
            "dist.all_reduce(gradients, group=flat.group)\n        "
            "part = gradients.chunk(flat.ranks)[dist.get_rank(flat.group)].clone()",
            "bytes",
        ),
        ("flat.add(part)", "flat.add(part.flip(0))", "wrong"),
    ],
)
def test_each_wrong_backward_is_named(old, new, kind):
    assert old in BACKWARD
    verdict = judged("backward", BACKWARD.replace(old, new))
    assert kind in verdict.faults and verdict.outcome == WRONG, verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (SUM, "", "own_part"),
        ("square.sqrt()", "square", "square"),
        (".clamp(max=1)", "", "scaled_up"),
        ("return length", "return (length * (most / length).clamp(max=1))", "after"),
        ("(square, group", "(square, dist.ReduceOp.AVG, group", "averaged"),
        ("gradient *= ", "gradient = gradient * ", "not_scaled"),
        (LENGTH, "    length = square.sqrt()\n" + SUM.replace("square", "length"), "lengths_added"),
        (SUM, SUM + "    dist.all_reduce(gradients[0].clone(), group=self.group)\n", "bytes"),
    ],
)
def test_each_wrong_clip_is_named(old, new, kind):
    assert old in CLIP
    verdict = judged("clip", CLIP.replace(old, new))
    assert kind in verdict.faults and verdict.outcome == WRONG, verdict


def test_a_result_that_is_used_too_early_is_one_mistake_and_no_astronomical_number():
    def told(scale):
        shared = {"gathered": True, "most_whole": 1, "calls": [[("reduce-scatter", 8)]], "lengths": []}
        return [shared | {"gradients": [[[1.0 * scale, 2.0], None]]} for _ in range(2)]

    inputs = [(2, "backward", case, 0, 0.5) for case in ("twice", "plain")]
    verdict = judge_backward([told(1e30)] * 2, inputs, [told(1)] * 2)
    assert [*verdict.faults] == ["wrong"] and "many times their length" in verdict.faults["wrong"]


@pytest.mark.parametrize(("name", "code"), [("backward", BACKWARD), ("clip", CLIP)])
def test_a_right_answer_is_tried_in_all_cases_and_launched(name, code):
    assert check(name).outcome == UNANSWERED
    answers.save(f"fsdp_from_scratch.{name}", code)
    verdict = check(name, gpus=2)
    assert verdict.outcome == RIGHT, verdict
    assert "on 2 CPU processes" in " ".join(verdict.merits)
