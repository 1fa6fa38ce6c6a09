"""A student's `momentum_step` on real ranks: right ones, each wrong one by its kind, ones that raise or hang."""

import dataclasses

import pytest

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import judge
from labkit.course.source import code_of
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from lessons.optimizer_sharding.exercises import check

pytestmark = pytest.mark.usefixtures("elsewhere")

NAME = "optimizer_sharding.momentum_step"
REFERENCE = "import torch\nimport torch.distributed as dist\n\n\n" + code_of(check.by_name["momentum_step"].solution[0])
SCATTER = "    dist.reduce_scatter_tensor(mean, gradient / ranks, group=group)\n"
GATHER = "    dist.all_gather_into_tensor(weight, own, group=group)\n"
OWN = "weight.chunk(ranks)[rank]"
ALL_REDUCE = """    gradient = gradient / ranks
    dist.all_reduce(gradient, group=group)
    mean = gradient.chunk(ranks)[rank]
"""
SCATTER_LIST = """    parts = list((gradient / ranks).chunk(ranks))
    dist.reduce_scatter(mean, parts, group=group, async_op=True).wait()
"""
GATHER_LIST = """    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own, group=group)
    dist.barrier(group=group)
    weight.copy_(torch.cat(parts))
"""
BROADCASTS = """    for owner, part in enumerate(weight.chunk(ranks)):
        dist.broadcast(part, group=group, group_src=owner)
"""
WHOLE = [(OWN, "weight"), (SCATTER, ALL_REDUCE.replace(".chunk(ranks)[rank]", "")), (GATHER, "")]
VIEW = [
    ("torch.empty_like(own)", "torch.empty_like(weight).chunk(ranks)[rank]"),
    ("beta * momentum + mean", "mean.add_(momentum, alpha=beta) if torch.is_tensor(momentum) else mean"),
]

# What is replaced in the reference solution, and the kind of the fault; none of a right one.
TRIED = {
    "lists": ([(SCATTER, SCATTER_LIST), (GATHER, GATHER_LIST)], ""),
    "broadcasts": ([(GATHER, BROADCASTS)], ""),
    "summed": ([("gradient / ranks", "gradient")], "summed"),
    "divided_twice": ([("gradient / ranks", "gradient / ranks / ranks")], "divided_twice"),
    "own_gradient": ([(SCATTER, f"    mean.copy_({OWN.replace('weight', 'gradient')})\n")], "not_reduced"),
    "own_divided": ([(SCATTER, "    mean.copy_(gradient.chunk(ranks)[rank] / ranks)\n")], "not_reduced_but_divided"),
    "all_reduce": ([(SCATTER, ALL_REDUCE)], "bytes"),
    "gathered_twice": ([(GATHER, GATHER + GATHER)], "bytes"),
    "whole": (WHOLE, "whole_momentum"),
    "view": (VIEW, "kept_memory"),
    "part_of_rank_0": ([(OWN, "weight.chunk(ranks)[0]")], "wrong_part_0"),
    "next_part": ([(OWN, "weight.chunk(ranks)[(rank + 1) % ranks]")], "wrong_part_1"),
    "not_gathered": ([(GATHER, "")], "not_gathered"),
    "not_waited": ([("own, group=group", "own, group=group, async_op=True")], "not_waited"),
    "mean_not_waited": ([("/ ranks, group=group", "/ ranks, group=group, async_op=True")], "wrong"),
    "no_momentum": ([("beta * momentum + mean", "mean")], "no_momentum"),
    "dampened": ([("momentum + mean", "momentum + (1 - beta) * mean")], "dampened"),
    "uphill": ([("own -=", "own +=")], "uphill"),
    "nothing_returned": ([("return momentum", "return None")], "form"),
}


def changed(*changes: tuple[str, str]) -> str:
    text = REFERENCE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def judged(code: str, inputs=((3, 2, 3, 1),), patience_s: float = 20.0) -> Verdict:
    """Give the verdict of the check, with a few of its cases."""
    answers.save(NAME, code)
    return check._verdict(dataclasses.replace(check.by_name["momentum_step"], inputs=inputs), patience_s, {})


QUICK = ("lists", "summed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TRIED]
)
def test_each_fault_by_its_kind(name):
    changes, kind = TRIED[name]
    verdict = judged(changed(*changes))
    assert verdict.outcome == (WRONG if kind else RIGHT), verdict
    assert [*verdict.faults] == [kind][: bool(kind)], verdict


def test_the_reference_solution_is_right_in_all_cases_and_a_skeleton_is_open():
    answers.save(NAME, "def momentum_step(weight, gradient, momentum, group, rate, beta):\n    ...\n")
    assert check("momentum_step").outcome == UNANSWERED
    answers.save(NAME, REFERENCE)
    verdict = check("momentum_step")
    assert verdict.outcome == RIGHT and "2, 3 and 4 ranks" in verdict.merits[0], verdict
    assert check.yours("momentum_step") == str(answers.file_of(NAME))


RANK_0 = "    if rank == 0:\n        "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        ([(SCATTER, RANK_0 + "dist.barrier(group=group)\n" + SCATTER)], HUNG, "ranks wait for each other"),
        ([(GATHER, RANK_0 + GATHER.lstrip())], HUNG, "ranks wait for each other"),
        ([(SCATTER, RANK_0 + "while True: pass\n" + SCATTER)], HUNG, "did not come back within 3 s"),
        ([("(mean, gradient", "(mean[1:], gradient")], RAISED, "one tensor has a part, the other all parts"),
        ([("/ ranks, group=group", "/ ranks")], RAISED, "pass it as `group=`"),
        ([("own -= ", "own.grad.mul_(0)\n    own -= ")], RAISED, "raises AttributeError in line"),
    ],
)
def test_an_answer_that_raises_or_hangs_is_told_so(changes, outcome, says):
    verdict = judged(changed(*changes), ((2, 3, 2, 0), (3, 3, 2, 0)), patience_s=3)
    (sentence,) = verdict.faults.values()
    assert verdict.outcome == outcome and says in sentence, verdict


@pytest.mark.slow
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("name", ["lists", "summed", "whole", "not_gathered", "all_reduce"])
def test_the_grader_says_what_the_check_says(name):
    changes, kind = TRIED[name]
    verdict = judge(exercise_of(NAME), NAME, changed(*changes), "ada", limits=Limits(40))
    assert verdict.outcome == (WRONG if kind else RIGHT), verdict
    assert {*verdict.faults} == {kind} - {""}
