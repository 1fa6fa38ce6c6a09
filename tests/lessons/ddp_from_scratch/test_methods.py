"""A student's `exchange` and `ready` run in their classes on real ranks: right ones, and each wrong one by its kind."""

import dataclasses

import pytest

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from labkit.launching import launch
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.exercises import check, judge_steps

pytestmark = pytest.mark.usefixtures("elsewhere")

EXCHANGE = """
import torch
import torch.distributed as dist


def exchange(self):
    gradients = [self.gradient(weight) for weight in self.weights]
    flat = torch.cat([gradient.flatten() for gradient in gradients]) / self.ranks
    dist.all_reduce(flat, group=self.group)
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(part.view_as(gradient))
"""
UNUSUAL = """
import torch
import torch.distributed as dist


def exchange(self):
    flat = torch.empty(sum(weight.numel() for weight in self.weights))
    parts, begin = [], 0
    for weight in self.weights:
        parts.append(flat[begin : begin + weight.numel()].view_as(weight))
        parts[-1].copy_(self.gradient(weight))
        begin += weight.numel()
    dist.all_reduce(flat, group=self.group, async_op=True).wait()
    for weight, part in zip(self.weights, parts):
        weight.grad = (part / dist.get_world_size(self.group)).to(weight.dtype)
"""
READY = """
def ready(self, weight):
    if self.sync:
        self.copy_into_bucket(weight)
        self.missing[self.bucket_of[weight]] -= 1
        while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.send_next()
"""
LOOP = READY[READY.index("        while") :]
CASES = [(2, "plain", 0), (3, "unused_on_some", 1), (4, "accumulation", 2)]


def judged(name: str, code: str, patience_s: float = 20.0) -> Verdict:
    """Give the verdict of the check, with a few of its cases, and without the steps that it times."""
    answers.save(f"ddp_from_scratch.{name}", code)
    exercise = check.by_name[name]
    few = dataclasses.replace(exercise, inputs=[(ranks, name, case, seed) for ranks, case, seed in CASES], trial=None)
    return check._verdict(few, patience_s, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("]) / self.ranks", "])", "summed"),
        ("(part.view_as", "(part.view_as(gradient) / self.ranks if True else part.view_as", "divided_twice"),
        ("]) / self.ranks", "]) / 2", "factor"),
        ("dist.all_reduce(flat, group=self.group)", "dist.reduce(flat, 0, group=self.group)", "one_rank"),
        ("group=self.group)\n", "group=self.group, async_op=True)\n", "wrong or unwaited"),
        ("    dist.all_reduce(flat, group=self.group)\n", "", "silent"),
        ("group=self.group)\n", "group=self.group)\n    flat = flat.flip(0)\n", "mixed_up"),
        ("group=self.group)\n", "group=self.group)\n    dist.all_reduce(flat[:0] * 1.0, group=self.group)\n", "calls"),
        (
            "self.gradient(weight) for weight in self.weights",
            "w.grad for w in self.weights if w.grad is not None",
            "none",
        ),
    ],
)
def test_each_wrong_exchange_is_named(old, new, kind):
    assert old in EXCHANGE
    verdict = judged("exchange", EXCHANGE.replace(old, new))
    assert {*verdict.faults} <= {*kind.split(" or ")} and verdict.outcome == WRONG, verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("while len", "if len", {"late"}),
        ("self.send_next()", "self.send_next()\n            self.works[-1].wait()", {"waits"}),
        (LOOP, "", {"late"}),
        ("    if self.sync:\n", "    if True:\n", {"wrong"}),
        (LOOP, "        self.works.append(self.average(weight.grad))\n", {"wrong", "mismatch"}),
    ],
)
def test_each_wrong_ready_is_named(old, new, kinds):
    assert old in READY
    verdict = judged("ready", READY.replace(old, new))
    assert verdict.outcome in (WRONG, RAISED) and {*verdict.faults} & kinds, verdict


def test_a_rank_that_makes_one_call_more_is_waited_for_no_longer_than_asked():
    more = "    if dist.get_rank() == 0:\n        dist.all_reduce(flat, group=self.group)\n"
    verdict = judged("exchange", EXCHANGE + more, patience_s=3.0)
    assert verdict.outcome in (HUNG, RAISED), verdict


@pytest.mark.parametrize(("name", "code"), [("exchange", UNUSUAL), ("ready", READY)])
def test_a_right_method_is_checked_in_all_cases_timed_and_drawn_as_yours(name, code):
    assert check(name).outcome == UNANSWERED
    answers.save(f"ddp_from_scratch.{name}", code)
    verdict = check(name, gpus=2)
    assert verdict.outcome == RIGHT, verdict
    assert "14 cases" in verdict.merits[0] and "with your method" in verdict.merits[-2]
    plan = ddp.Implementations.small(gpus=3, strategies=("none", "ddp"), **{name: ddp.yours(name)})
    table = ddp.implementations(launch(plan, progress=False))
    assert (table["status"] == "ok").all() and table["strategy"].iloc[-1].startswith("your_")
    ticks = ddp.steps_chart(table).axes[0].get_yticklabels()
    assert ticks[-1].get_text().endswith(", yours")


def test_steps_that_fail_are_told(tmp_path):
    (file := tmp_path / "ddp_from_scratch_exchange.py").write_text(EXCHANGE)
    plan = ddp.Implementations.small(gpus=2, strategies=("none", "flat", "ddp"), exchange=str(file))
    run = launch(plan, progress=False)
    assert judge_steps("exchange", run).outcome == RIGHT
