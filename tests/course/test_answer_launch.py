"""A student's function is called where it is answered only; what comes of it is given, or named in a verdict."""

import json
from random import Random
from types import SimpleNamespace

import pandas as pd
import pytest

from labkit import node
from labkit.course import answer_launch, answers
from labkit.course.exercises import Cases, Exercise, Exercises, cases_of
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from labkit.engine.call import Call
from labkit.engine.errors import RunError, WorkerHung
from labkit.engine.run import Run
from lessons import broadcast

INPUTS = [([5, 5], 1, 9), ([7], 1, 9)]


@pytest.fixture
def ends(answers_folder, monkeypatch):
    """Return a function that makes the launch end in a table of rows or an error, and the plans that were launched."""
    launched = []

    def make(outcome) -> list:
        def launch(plan, patience_s):
            launched.append((plan, patience_s))
            if isinstance(outcome, Exception):
                raise outcome
            return SimpleNamespace(rows=outcome)

        monkeypatch.setattr(answer_launch, "launch", launch)
        return launched

    return make


def answered() -> None:
    answers.save("ddp_fsdp.buckets", "def buckets(sizes, first, cap):\n    return []\n")


def test_no_answer_and_a_skeleton_launch_nothing(ends):
    launched = ends(pd.DataFrame())
    assert answer_launch.call_answer("ddp_fsdp.buckets", INPUTS).outcome == UNANSWERED
    answers.save("ddp_fsdp.buckets", "def buckets(sizes, first, cap):\n    ...\n")
    verdict = answer_launch.call_answer("ddp_fsdp.buckets", INPUTS)
    assert (verdict.outcome, verdict.exercise) == (UNANSWERED, "buckets")
    assert launched == []


def test_an_answer_is_called_on_every_input(ends):
    launched = ends(pd.DataFrame({"given": [[[1], [0]], [[0]]]}))
    answered()
    assert answer_launch.call_answer("ddp_fsdp.buckets", INPUTS, 3.0) == [[[1], [0]], [[0]]]
    ((plan, patience_s),) = launched
    assert (plan.function, plan.gpus, patience_s) == ("buckets", 1, 3.0)
    assert plan.file == str(answers.file_of("ddp_fsdp.buckets"))
    assert [point.arguments for point in plan.points()] == json.loads(json.dumps(INPUTS))


def test_what_gave_nothing_is_given_as_nothing(ends):
    ends(pd.DataFrame({"rank": [0, 0]}))
    answered()
    assert [pd.isna(one) for one in answer_launch.call_answer("ddp_fsdp.buckets", INPUTS)] == [True, True]


@pytest.mark.parametrize(
    ("error", "outcome", "says"), [(WorkerHung, HUNG, "did not come back within 3 s"), (RunError, RAISED, "it broke")]
)
def test_a_launch_that_failed_is_a_verdict(ends, error, outcome, says):
    run = Run.create(Call(gpus=1, device="cpu", file="answer.py", function="buckets"), node.here())
    ends(error("it broke", run=run, detail="line 1"))
    answered()
    verdict = answer_launch.call_answer("ddp_fsdp.buckets", INPUTS, 3.0)
    assert verdict.outcome == outcome
    assert says in verdict.faults[{HUNG: "hung", RAISED: "raised"}[outcome]]
    assert verdict.detail == "line 1"


def test_the_shown_cases_are_the_hidden_ones_drawn_at_seed_0():
    cases = Cases(lambda random: [(random.randint(1, 99),) for _ in range(5)])
    shown = Exercise("doubled", cases=cases).inputs
    assert shown == tuple(cases.make(Random(0))) != tuple(cases.make(Random(1)))
    assert Exercise("doubled", inputs=((1,),), cases=cases).inputs == ((1,),), "a list of inputs is kept"


def test_the_notebooks_check_gives_the_judge_what_the_answer_was_called_with(ends):
    def judge(given, inputs):
        right = [given, [*inputs]] == [[[[1], [0]], [[0]]], INPUTS]
        return Verdict.of_faults("buckets", {} if right else {"inputs": str(inputs)}, "as called")

    ends(pd.DataFrame({"given": [[[1], [0]], [[0]]]}))
    answered()
    assert Exercises("ddp_fsdp", Exercise("buckets", INPUTS, judge))("buckets").outcome == RIGHT


def test_a_grader_takes_the_exercises_own_judge_where_its_cases_have_none(monkeypatch):
    def judge(given, inputs):
        raise AssertionError("is not called here")

    made = Exercise("doubled", cases=Cases(lambda random: [(1,)]), judge=judge)
    monkeypatch.setitem(broadcast.check.by_name, "doubled", made)
    assert cases_of("broadcast.doubled").judge is judge
    assert cases_of("broadcast.pipelined").judge is broadcast.check.by_name["pipelined"].cases.judge is not None


@pytest.mark.parametrize(
    ("outcome", "faults", "merits", "shown"),
    [
        (RIGHT, {}, ("all copies are equal", "3 ms"), "✔ **`one`: right**\n\n- ✔ all copies are equal\n- ✔ 3 ms"),
        (WRONG, {"bytes": "too many", "form": "two"}, (), "✘ **`one`: wrong**\n\n- ✘ too many\n- ✘ two"),
        (UNANSWERED, {}, (), "○ **`one`: not answered yet**"),
    ],
)
def test_a_verdict_lists_faults_or_merits(outcome, faults, merits, shown):
    verdict = Verdict("one", outcome, faults, merits)
    assert verdict._repr_markdown_().rstrip() == shown
    assert repr(verdict).splitlines() == [f"one: {outcome}", *faults.values(), *merits]


def test_a_traceback_stands_in_its_verdict_as_it_is():
    verdict = Verdict("one", RAISED, {"raised": "rank 0 raised"}, detail='  File "a.py", line 3\n    a *b* <c>\n')
    assert verdict._repr_markdown_().endswith('```text\nFile "a.py", line 3\n    a *b* <c>\n```')
