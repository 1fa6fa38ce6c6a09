"""A student's `update_all` in its optimizer on real ranks: right ones, each wrong one by its kind, timed and drawn."""

import dataclasses
import textwrap

import pytest
from figures import checked
from made import CPU, gpu_node, write_run

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import judge
from labkit.course.source import code_of
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from labkit.launching import launch
from lessons import optimizer_sharding
from lessons.optimizer_sharding.exercises import check, judge_launch
from lessons.optimizer_sharding.judged import judge_momentum, judge_zero
from lessons.optimizer_sharding.plan import CASES, OPTIMIZERS, Equality, Exchanges

pytestmark = pytest.mark.usefixtures("elsewhere")

NAME = "optimizer_sharding.update_all"
IMPORTS = "import torch\nimport torch.distributed as dist\n\n\n"
REFERENCE = IMPORTS + textwrap.dedent(code_of(check.by_name["update_all"].solution[0])) + "\n"
SCATTER = (
    "        dist.reduce_scatter_tensor(mean, self.flat_gradient(bucket) / self.ranks, group=self.process_group)\n"
)
UPDATE = "        self.update_part(bucket, mean)\n"
SEND = "        sent.append(self.send(bucket, bucket.flat))\n"
WAIT = "    for work in sent:\n        work.wait()\n"
PART = "        mean = (self.flat_gradient(bucket) / self.ranks)"
ALL_REDUCE = """        flat = self.flat_gradient(bucket) / self.ranks
        dist.all_reduce(flat, group=self.process_group)
        mean = flat[bucket.begin : bucket.end]
"""
# Scatters all gradients at first, gathers without `send`.
UNUSUAL = """
def update_all(self):
    started, sent = [], []
    for bucket in self.buckets:
        flat = self.flat_gradient(bucket)
        mean = torch.empty(bucket.end - bucket.begin)
        work = dist.reduce_scatter_tensor(mean, flat, group=self.process_group, async_op=True)
        started.append((bucket, flat, mean, work))
    for bucket, _, mean, work in started:
        work.wait()
        self.update_part(bucket, mean / dist.get_world_size(self.process_group))
        own = bucket.flat[bucket.begin : bucket.end]
        sent.append(dist.all_gather_into_tensor(bucket.flat, own, group=self.process_group, async_op=True))
    for work in sent:
        work.wait()
"""

# What is replaced in the reference solution, and the kind of the fault.
TRIED = {
    "summed": ([(" / self.ranks", "")], "summed"),
    "divided_twice": ([(" / self.ranks", " / self.ranks**2")], "divided_twice"),
    "own_gradient": ([(SCATTER, PART + "[bucket.begin : bucket.end]\n")], "not_reduced"),
    "all_reduce": ([(SCATTER, ALL_REDUCE)], "bytes"),
    "mean_not_waited": ([("group=self.process_group", "group=self.process_group, async_op=True")], "wrong"),
    "not_gathered": ([(SEND, "")], "not_gathered"),
    "not_waited": ([(WAIT, "")], "not_waited"),
    "waits_for_each": ([(SEND, SEND + "        sent[-1].wait()\n")], "waits"),
    "all_sent_at_the_end": ([(SEND, ""), (WAIT, "    for bucket in self.buckets:\n" + SEND + WAIT)], "late"),
    "sent_before_its_update": ([(UPDATE + SEND, SEND + UPDATE)], "gathered_early"),
    "no_update": ([(UPDATE, "")], "no_update"),
    "first_bucket": ([("in self.buckets", "in self.buckets[:1]")], "buckets"),
}


def changed(*changes: tuple[str, str]) -> str:
    text = REFERENCE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def judged(code: str, *numbers_of_ranks: int, patience_s: float = 20.0) -> Verdict:
    """Give the verdict of the check, with few cases, and without what trains and is timed."""
    answers.save(NAME, code)
    inputs = [(ranks, [5, 9, 1, 7, 4, 8], 1) for ranks in numbers_of_ranks]
    return check._verdict(dataclasses.replace(check.by_name["update_all"], inputs=inputs, trial=None), patience_s, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_each_fault_by_its_kind(name):
    changes, kind = TRIED[name]
    verdict = judged(changed(*changes), 3)
    assert verdict.outcome == WRONG and [*verdict.faults] == [kind], verdict


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_memory_that_was_never_written_is_judged(value):
    told = {"start": [1.0, 1.0], "gradients": [[1.0, 2.0]], "kept": [[1, 1]], "calls": [["all-gather", 8]]}
    bucket = [["reduce-scatter", 8], "update", ["all-gather", 8]]
    told |= {"weights": [[2.0, 3.0]], "events": [[*bucket, *bucket, "wait", "wait"]]}
    odd = told | {"weights": [[value, 3.0]]}
    for judge_ranks, inputs in ((judge_momentum, [(2, 1, 1, 0)]), (judge_zero, [(2, [2], 0)])):
        assert judge_ranks([[told, told]], inputs, [[told, told]]).outcome == RIGHT
        assert [*judge_ranks([[odd, odd]], inputs, [[told, told]]).faults] == ["wrong"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        (
            [(SCATTER, "        if self.rank == 0:\n            dist.barrier(self.process_group)\n" + SCATTER)],
            HUNG,
            "wait for each other",
        ),
        ([(UPDATE, UPDATE.replace("mean", "self.flat_gradient(bucket)"))], RAISED, "this rank's part of the mean"),
        ([(", group=self.process_group", "")], RAISED, "pass it as `group=`"),
    ],
)
def test_an_answer_that_raises_or_hangs_is_told_so(changes, outcome, says):
    verdict = judged(changed(*changes), 2, 3, patience_s=3)
    (sentence,) = verdict.faults.values()
    assert verdict.outcome == outcome and says in sentence, verdict


def test_a_right_unusual_answer_trains_is_timed_and_drawn_as_yours():
    answers.save(NAME, "def update_all(self):\n    ...\n")
    assert check("update_all").outcome == UNANSWERED
    answers.save(NAME, IMPORTS + UNUSUAL.lstrip())
    verdict = check("update_all", size="small", gpus=2)
    assert verdict.outcome == RIGHT, verdict
    assert f"in {len(OPTIMIZERS) + len(CASES) - 2} cases" in verdict.merits[2] and "with yours" in verdict.merits[3]
    answers.save("optimizer_sharding.momentum_step", IMPORTS + code_of(check.by_name["momentum_step"].solution[0]))
    assert check("momentum_step").outcome == RIGHT
    written = {name: optimizer_sharding.yours(name) for name in ("momentum_step", "update_all")}
    table = optimizer_sharding.exchanges(launch(Exchanges.small(gpus=2, repeats=1, **written), progress=False))
    ways = ["unsharded", "zero_buckets", "sharded", "zero1", "your_momentum", "your_zero"]
    assert table["way"].tolist() == ways and (table["status"] == "ok").all() and (table["ms"] > 0).all()


@pytest.mark.slow
def test_the_reference_solution_trains_as_the_whole_optimizer():
    table = optimizer_sharding.equality(launch(Equality.small(gpus=3, ways=("zero1",)), progress=False))
    assert {*table["case"]} == {*CASES} - {"other_ranks"} and table["equal"].all(), table


def test_weights_that_differ_are_told_with_their_cases(tmp_path):
    (file := tmp_path / "update_all.py").write_text(changed((" / self.ranks", "")))
    plan = Equality.small(gpus=2, ways=(), optimizers=("sgd",), cases=("groups",), update_all=str(file))
    verdict = judge_launch(launch(plan, progress=False))
    assert verdict.outcome == WRONG and "sgd, case `plain`" in verdict.faults["unequal"], verdict


MS = {"unsharded": 60.0, "zero_buckets": 55.0, "sharded": 50.0, "zero1": 40.0, "your_momentum": 44.0, "your_zero": 41.0}


def exchanged(folder, *, device="cuda", ms=MS, **knobs):
    size = "full" if device == "cuda" else "small"
    plan = Exchanges(device=device, gpus=2, size=size, momentum_step="m.py", update_all="u.py", **knobs)
    rows = [
        (rank, vars(point) | {"iteration": number, "warm_up": number == 0, "ms": ms[point.way] * factor})
        for point in plan.points()
        for number, factor in enumerate((9, 0.98, 1, 1.02))
        for rank in range(2)
    ]
    return optimizer_sharding.exchanges(write_run(folder, plan, gpu_node(2) if device == "cuda" else CPU, rows))


def test_what_is_said_and_drawn_of_times(tmp_path):
    table = exchanged(tmp_path / "gpus")
    said = optimizer_sharding.exchange_times(table).data
    assert "ZeRO-1 takes 40.0 ms, 0.80× ours" in said
    assert "| your update_all | reduce-scatter, update, gather | 41.0 |" in said
    (ax,) = checked(optimizer_sharding.exchange_chart(table)).axes
    assert [label.get_text() for label in ax.get_yticklabels()][-1].startswith("your update_all:\nreduce-scatter")
    colors = [bar.get_facecolor() for bar in ax.patches]
    assert colors[-1] == colors[-2] != colors[0], "a student's own have their colour"
    alike = exchanged(tmp_path / "alike", ms=MS | {"zero1": 50.1})
    assert "as long as ours, within noise" in optimizer_sharding.exchange_times(alike).data
    here = exchanged(tmp_path / "cpu", device="cpu")
    assert "say nothing about GPUs" in optimizer_sharding.exchange_times(here).data
    partly = exchanged(tmp_path / "partly", ways=("sharded",))
    assert "nothing to compare with" in optimizer_sharding.exchange_times(partly).data


def test_a_way_that_failed_is_drawn_with_its_status(tmp_path):
    table = exchanged(tmp_path / "run")
    table.loc[table["way"] == "zero1", ["ms", "spread_ms", "status"]] = [float("nan"), float("nan"), "out of memory"]
    (ax,) = checked(optimizer_sharding.exchange_chart(table)).axes
    assert "out of memory" in [text.get_text().strip() for text in ax.texts]
    assert "nothing to compare with" in optimizer_sharding.exchange_times(table).data


@pytest.mark.slow
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("name", ["unusual", "summed", "all_reduce", "waits_for_each"])
def test_the_grader_says_what_the_check_says(name):
    changes, kind = TRIED.get(name, ([], ""))
    code = changed(*changes) if kind else IMPORTS + UNUSUAL
    verdict = judge(exercise_of(NAME), NAME, code, "ada", limits=Limits(40))
    assert verdict.outcome == (WRONG if kind else RIGHT), verdict
    assert {*verdict.faults} == {kind} - {""}
