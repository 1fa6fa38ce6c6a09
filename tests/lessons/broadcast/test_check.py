"""The checks of a student's broadcast, with real launches: right and wrong answers, and every bug by its kind.

Most functions are watched together in one launch, as `check` watches one beside the workbook's own.
"""

from __future__ import annotations

from random import Random

import pytest
from broadcasts import PIPELINED, SCATTER, watched
from exercises_tried import written_as

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG
from lessons.broadcast import bugs
from lessons.broadcast.exercises import check, check_function, judge
from lessons.broadcast.worker import methods
from lessons.broadcast.worker.trial import drive

DROPS_A_CHUNK = PIPELINED.replace("chunks):\n        arrived", "chunks)[:-1]:\n        arrived")

PULLS_TWICE = PIPELINED.replace("    for part", "    lanes.host(0).copy(copies[0], source)\n    for part")

EACH_PULLS_ALL = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        for gpu in range(len(copies)):
            lanes.host(gpu).copy(copies[gpu][part], source[part])
"""

NO_OVERLAP = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
    for part in lanes.parts(len(source), chunks):
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)
"""

STAGES = """
def {name}(source, copies, chunks, lanes):
    stage = copies[0].clone()
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        staged = lanes.peer(0, 0).copy(stage[part], copies[0][part], after=arrived)
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], stage[part], after=staged)
"""

FORWARDS_NOTHING = PIPELINED.replace("lanes.others(0)", "[]")

DOES_NOTHING = "def {name}(source, copies, chunks, lanes):\n    pass\n"

# name: text, the exercise that it answers, the kinds of fault that the check must find (no other)
ANSWERS = {
    "right_pipelined": (PIPELINED, "pipelined", set()),
    "right_scatter": (SCATTER, "scatter_all_gather", set()),
    "drops_a_chunk": (DROPS_A_CHUNK, "pipelined", {"wrong_copy", "bytes"}),
    "pulls_twice": (PULLS_TWICE, "pipelined", {"bytes"}),
    "each_pulls_all": (EACH_PULLS_ALL, "pipelined", {"bytes"}),
    "one_link_only": (PIPELINED, "scatter_all_gather", {"bytes"}),
    "no_overlap": (NO_OVERLAP, "pipelined", {"no_overlap"}),
    "stages": (STAGES, "pipelined", {"own_buffer"}),
    "forwards_nothing": (FORWARDS_NOTHING, "pipelined", {"wrong_copy"}),
    "does_nothing": (DOES_NOTHING, "pipelined", {"wrong_copy", "bytes"}),
}


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """One launch that watches every answer above, every bug and the workbook's own."""
    texts = {name: text for name, (text, *_) in ANSWERS.items()}
    return watched(tmp_path_factory.mktemp("trial"), texts, [f"bugs.{name}" for name in bugs.SYMPTOMS])


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_gets_its_verdict(trial, name):
    _, exercise, kinds = ANSWERS[name]
    verdict = judge(exercise, exercise, f"answers.{name}", trial)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


@pytest.mark.parametrize("name", bugs.SYMPTOMS)
def test_a_bug_is_named(trial, name):
    verdict = judge(name, "staged", f"bugs.{name}", trial)
    assert name in verdict.faults, verdict
    assert set(verdict.faults) == {name}
    assert verdict.outcome == WRONG


@pytest.mark.parametrize("own", ["staged", "pipelined", "scatter_all_gather"])
def test_the_workbooks_own_is_right(trial, own):
    assert judge(own, own, f"methods.{own}", trial).outcome == RIGHT


def test_words_name_what_to_change(trial):
    def said(name: str, kind: str) -> str:
        exercise = ANSWERS[name][1]
        return judge(exercise, exercise, f"answers.{name}", trial).faults[kind]

    assert said("drops_a_chunk", "bytes").startswith("the host links carried 0.75 × the tensor, to GPU 0;")
    assert said("pulls_twice", "bytes").startswith("the host links carried 2.00 × the tensor, to GPU 0;")
    assert said("each_pulls_all", "bytes").startswith(
        "the host links carried 4.00 × the tensor, to GPUs 0, 1, 2 and 3;"
    )
    assert said("one_link_only", "bytes").endswith("each element should cross them once, to GPUs 0, 1, 2 and 3")
    assert "to no GPU;" in said("does_nothing", "bytes")
    assert said("does_nothing", "wrong_copy").startswith("GPUs 0, 1, 2 and 3 received no data: did you pull each part")
    assert said("forwards_nothing", "wrong_copy") == "GPUs 1, 2 and 3 received no data: did you forward each part?"
    assert said("drops_a_chunk", "wrong_copy").startswith("wrong copy on GPU 0, 1, 2, 3 in 4 of 4 repeats")


@pytest.mark.parametrize("exercise, text", [("pipelined", PIPELINED), ("scatter_all_gather", SCATTER)])
def test_a_right_answer(exercise, text):
    answers.save(f"broadcast.{exercise}", text.format(name=exercise) + "    print('here')\n")
    verdict = check(exercise)
    assert verdict.outcome == RIGHT, verdict
    assert "all 4 copies equal the source" in verdict.merits[0]
    assert "its time" in verdict.merits[1]
    assert verdict.printed == "here", "what its first call printed"


def test_an_answer_for_four_gpus_alone_is_wrong():
    answers.save("broadcast.pipelined", PIPELINED.format(name="pipelined").replace("lanes.others(0)", "(1, 2, 3)"))
    verdict = check("pipelined")
    assert verdict.outcome == RAISED
    assert verdict.faults["raised"].startswith("it is right on 4 GPUs, and not on 2: "), verdict


def test_each_student_has_fewer_gpus_than_four_and_more_and_an_answer_for_no_more_is_wrong():
    cases, outcomes = check.by_name["pipelined"].cases, []
    for student in range(200):
        assert sorted(gpus > 4 for _, gpus, *_ in cases.make(Random(student))) == [False, True]
    inputs = cases.make(Random(0))
    for gpus in ("lanes.others(0)", "range(1, min(4, len(copies)))"):
        function = written_as(
            "broadcast.pipelined", PIPELINED.format(name="pipelined").replace("lanes.others(0)", gpus)
        )
        given, due = ([drive(each, *case) for case in inputs] for each in (function, methods.pipelined))
        outcomes.append(cases.judge(given, inputs, due).outcome)
    assert outcomes == [RIGHT, WRONG]


def test_a_bug_can_be_checked_by_its_name():
    assert "early_forward" in check_function("early_forward").faults


def test_an_answer_that_raises_shows_its_own_line():
    text = PIPELINED.format(name="pipelined").replace("copies[gpu][part],", "copies[gpu + 1][part],")
    answers.save("broadcast.pipelined", text)
    line = text.splitlines().index(next(line for line in text.splitlines() if "gpu + 1" in line)) + 1
    verdict = check("pipelined")
    assert verdict.outcome == RAISED
    assert "IndexError" in verdict.faults["raised"] and "list index out of range" in verdict.faults["raised"]
    assert f"line {line}" in verdict.faults["raised"]
    assert f'{answers.file_of("broadcast.pipelined")}", line {line}, in pipelined' in verdict.detail


@pytest.mark.slow
def test_an_answer_that_hangs_comes_back():
    text = "import threading\n\n\ndef pipelined(source, copies, chunks, lanes):\n    threading.Event().wait()\n"
    answers.save("broadcast.pipelined", text)
    verdict = check("pipelined", patience_s=4)
    assert verdict.outcome == HUNG
    assert "did not come back within 4 s" in verdict.faults["hung"]
    assert "broadcast_pipelined.py" in verdict.detail


@pytest.mark.parametrize("text", ["", "def pipelined(source, copies, chunks, lanes):\n    ...\n"])
def test_an_unanswered_exercise_starts_nothing(text, tmp_path):
    if text:
        answers.save("broadcast.pipelined", text)
    verdict = check("pipelined")
    assert (verdict.outcome, verdict.faults) == (UNANSWERED, {})
    assert not (tmp_path / "runs").exists()


def test_an_unknown_exercise_names_those_there_are():
    with pytest.raises(ValueError, match="'telepathy' is no exercise; there are pipelined, scatter"):
        check("telepathy")
