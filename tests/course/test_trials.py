"""An answer that the workers run in its place: its check launches it, and says when it may be drawn as yours."""

import pytest

from labkit.course import answers
from labkit.course.exercises import Exercise, Exercises, Trial
from labkit.course.verdict import RAISED, RIGHT, WRONG, Verdict
from labkit.engine.call import Call

CODE = "def double(number):\n    return 2 * number\n"


def plans(file, *, size="small", gpus=0):
    return [Call(gpus=1, device="cpu", file=file, function="double", inputs=f"[[{number}]]") for number in (3, 4)]


def judge(run):
    (given,) = run.rows["given"]
    return Verdict.of_faults("double", {} if given in ("6", "8") else {"wrong": f"it gives {given}"}, f"gives {given}")


CHECK = Exercises("trials", Exercise("double", trial=Trial(plans, judge)))


def test_every_run_of_a_right_answer_has_its_merit_and_the_newest_right_version_is_yours(answers_folder):
    assert CHECK("double").outcome == "not answered yet" and CHECK.yours("double") == ""
    answers.save("trials.double", CODE)
    assert CHECK.yours("double") == "", "not checked yet"
    verdict = CHECK("double", size="full")
    assert (verdict.outcome, verdict.merits) == (RIGHT, ("gives 6", "gives 8"))
    assert CHECK.yours("double") == str(answers.file_of("trials.double"))
    answers.save("trials.double", CODE.replace("return", "...\n    return"))
    assert CHECK.yours("double") == "", "the newest cell is a draft"
    answers.save("trials.double", CODE.replace("2 *", "3 *"))
    assert CHECK.yours("double") == "", "another version was saved since"


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        ("def double(number):\n    return 7\n", WRONG, "it gives 7"),
        ("def double(number):\n    print(7)\n    return 2 * number + number // 4\n", WRONG, "it gives 9"),
        ("def double(number):\n    raise KeyError(number)\n", RAISED, "KeyError"),
    ],
)
def test_the_first_run_that_fails_is_told(answers_folder, code, outcome, says):
    answers.save("trials.double", code)
    verdict = CHECK("double")
    assert verdict.outcome == outcome and says in "".join(verdict.faults.values())
    assert CHECK.yours("double") == ""


SHOWN_TOO = Exercises(
    "trials",
    Exercise(
        "double",
        inputs=[[1]],
        judge=lambda given, _: Verdict.of_faults("double", {} if given == [2] else {f"gives_{given[0]}": "wrong"}),
        trial=Trial(plans, judge, also_after=("gives_3", "gives_4", "gives_5")),
    ),
)


@pytest.mark.parametrize(
    ("code", "faults", "merits"),
    [
        ("return number + 2", ["gives_3", "wrong"], ()),
        ("return 2 * number + 2 * (number == 1)", ["gives_4"], ("gives 6", "gives 8")),
        ("return 5 if number == 1 else number / 0", ["gives_5"], ()),
        ("return 9", ["gives_9"], ()),
    ],
)
def test_a_trial_shows_what_some_faults_do(answers_folder, code, faults, merits):
    """What the trial finds is added; that it fails in a way of its own adds nothing."""
    answers.save("trials.double", f"def double(number):\n    {code}\n")
    verdict = SHOWN_TOO("double")
    assert (verdict.outcome, [*verdict.faults], verdict.merits) == (WRONG, faults, merits)
    assert SHOWN_TOO.yours("double") == ""
