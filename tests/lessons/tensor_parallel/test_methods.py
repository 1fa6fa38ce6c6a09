"""A student's functions run in the split layers on real ranks: right ones, and each wrong one by its kind."""

import dataclasses

import pytest

from labkit.course import answers
from labkit.course.verdict import RIGHT, UNANSWERED, WRONG, Verdict
from lessons.tensor_parallel.exercises import check

pytestmark = pytest.mark.usefixtures("elsewhere")

ROW = """
from torch.nn import functional

def forward(self, x):
    y = self.ranks.leave(functional.linear(x, self.weight))
    return y if self.bias is None else y + self.bias

def enter_backward(self, gradient):
    return self.sum(gradient)
"""
LOSS = """
import torch

def parallel_loss(logits, targets, ranks):
    words = logits.shape[-1]
    logits = logits.float()
    logits = logits - ranks.max(logits.max(-1, keepdim=True).values)
    total = ranks.sum_over_ranks(logits.exp().sum(-1))
    own = targets - ranks.rank * words
    mine = (own >= 0) & (own < words)
    picked = logits.gather(-1, own.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    return (total.log() - ranks.sum_over_ranks(picked)).mean()
"""
CASES = {"row": ("biased", "plain", "sequence_biased"), "parallel_loss": ("plain", "large")}


def judged(name: str, code: str) -> Verdict:
    """Give the verdict of the check, with a few of its cases, and without the run that it launches."""
    answers.save(f"tensor_parallel.{name}", code)
    inputs = [(ranks, name, case, 1) for ranks, case in zip((2, 3, 4), CASES[name], strict=False)]
    return check._verdict(dataclasses.replace(check.by_name[name], inputs=inputs, trial=None), 20.0, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "kind"),
    [
        (
            "row",
            "functional.linear(x, self.weight))",
            "functional.linear(x, self.weight, self.bias))\\n    return y",
            "bias",
        ),
        ("row", "y if self.bias is None else y + self.bias", "y", "no_bias"),
        ("row", "self.ranks.leave(functional.linear(x, self.weight))", "functional.linear(x, self.weight)", "partial"),
        ("row", "return self.sum(gradient)", "return gradient", "not_summed"),
        (
            "row",
            "functional.linear(x, self.weight))\\n    return y if self.bias is None else y + self.bias",
            "functional.linear(x, self.weight, None if self.bias is None else self.bias / self.ranks.count))"
            "\\n    return y",
            "bias_gradient",
        ),
        ("row", "functional.linear(x,", "functional.linear(self.ranks.enter(x),", "again"),
        ("row", "self.ranks.leave(", "self.ranks.sum(", "no_gradient"),
        ("row", "return self.sum(gradient)", "return self.sum(gradient) / self.count", "not_summed"),
        ("row", "return self.sum(gradient)", "self.sum(gradient)\\n    return self.sum(gradient)", "bytes"),
        ("row", "self.weight))", "self.weight)) / self.ranks.count", "averaged"),
        ("parallel_loss", "    logits = logits - ranks.max(logits.max(-1, keepdim=True).values)\\n", "", "overflow"),
        ("parallel_loss", ".squeeze(-1) * mine", ".squeeze(-1)", "wrong"),
        ("parallel_loss", "ranks.sum_over_ranks(logits", "ranks.sum(logits", "gradient"),
        ("parallel_loss", "ranks.sum_over_ranks(picked)", "picked", "apart"),
        ("parallel_loss", "ranks.sum_over_ranks(logits.exp().sum(-1))", "logits.exp().sum(-1)", "apart"),
        ("parallel_loss", "ranks.sum_over_ranks(picked)", "ranks.sum(picked)", "gradient"),
        ("parallel_loss", "    total =", "    ranks.gather(logits.detach())\\n    total =", "bytes"),
        ("parallel_loss", ".mean()", ".sum()", "wrong"),
    ],
)
def test_each_wrong_answer_is_named(name, old, new, kind):
    code = {"row": ROW, "parallel_loss": LOSS}[name]
    old, new = old.replace("\\n", "\n"), new.replace("\\n", "\n")
    assert old in code
    verdict = judged(name, code.replace(old, new))
    assert kind in verdict.faults and verdict.outcome == WRONG, verdict


@pytest.mark.parametrize(("name", "code"), [("row", ROW), ("parallel_loss", LOSS)])
def test_a_right_answer_is_tried_in_all_cases_and_launched(name, code):
    assert check(name).outcome == UNANSWERED
    answers.save(f"tensor_parallel.{name}", code)
    verdict = check(name, gpus=2)
    assert verdict.outcome == RIGHT, verdict
    assert "on 2 CPU processes" in " ".join(verdict.merits)
