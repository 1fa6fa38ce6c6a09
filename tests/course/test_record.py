"""What a student did is kept: versions of an answer with their verdicts, hints, and the reference solution's gate."""

from __future__ import annotations

import json

import pytest

from labkit.course import answers, record
from labkit.course.exercises import CORE, STRETCH, WARM_UP, Exercise, Exercises
from labkit.course.verdict import RIGHT, WRONG, Verdict

NAME = "sharding.held_bytes"
SOLUTION = ("lessons.broadcast.worker.methods.staged",)


pytestmark = pytest.mark.usefixtures("answers_folder")


def written(text: str) -> str:
    return f"def held_bytes(x):\n    return {text}\n"


def lab(outcome: str = RIGHT) -> Exercises:
    """Return exercises whose check launches nothing: the verdict is always the same."""
    one = Exercise(
        "held_bytes",
        check=lambda exercise, **_: Verdict(exercise, outcome, {} if outcome == RIGHT else {"wrong": "it is wrong"}),
        hints=("look there", "a loop", "for part in parts"),
        grade=STRETCH,
        solution=SOLUTION,
    )
    return Exercises("sharding", one)


def test_every_version_is_kept_with_its_verdict_and_what_changed():
    assert "no answer" in lab().attempts("held_bytes").data
    answers.save(NAME, written("1"))
    lab(WRONG)("held_bytes")
    answers.save(NAME, written("2"))
    answers.save(NAME, written("2"))
    verdict = lab(RIGHT)("held_bytes")
    assert [(one["number"], one["outcome"]) for one in record.answered(NAME)] == [(1, WRONG), (2, RIGHT)]
    shown = lab().attempts("held_bytes").data
    assert "-    return 1" in shown and "+    return 2" in shown and "| 2 |" in shown
    assert verdict.outcome == RIGHT and record.exercise_record(NAME)["right_at"]


def test_a_skeleton_and_a_cell_that_is_no_python_are_no_attempts():
    answers.save(NAME, "def held_bytes(x):\n    ...\n")
    with pytest.raises(SyntaxError):
        answers.save(NAME, "def held_bytes(x:\n")
    assert record.answered(NAME) == [] and "no answer" in lab().attempts("held_bytes").data


def test_a_second_wrong_attempt_says_where_its_changes_are_shown():
    answers.save(NAME, written("1"))
    assert "attempts(" not in str(lab(WRONG)("held_bytes"))
    answers.save(NAME, written("2"))
    assert 'sharding.attempts("held_bytes")' in str(lab(WRONG)("held_bytes"))


def test_the_reference_solution_comes_after_a_right_answer_or_when_it_is_asked_for():
    answers.save(NAME, written("1"))
    lab(WRONG)("held_bytes")
    assert "after a right answer" in lab().solution("held_bytes").data
    assert "def staged" in lab().solution("held_bytes", anyway=True).data


def test_after_a_right_answer_the_solution_is_shown():
    answers.save(NAME, written("1"))
    verdict = lab(RIGHT)("held_bytes")
    assert 'sharding.solution("held_bytes")' in str(verdict) and "3 points" in str(verdict)
    assert "def staged" in lab().solution("held_bytes").data


def test_hints_go_on_after_a_restart_and_an_earlier_one_can_be_seen_again():
    answers.save(NAME, written("1"))
    assert "hint 1 of 3" in str(lab(WRONG)("held_bytes"))
    first, second = (lab().hint("held_bytes").data for _ in range(2))
    assert "look there" in first and "a loop" in second
    assert "for part" not in first + second, "no step tells of a later one"
    assert "hint 3 of 3" in str(lab(WRONG)("held_bytes"))
    assert "look there" in lab().hint("held_bytes", 1).data
    assert all("for part" in lab().hint("held_bytes", *number).data for number in ([3], [], []))
    assert record.exercise_record(NAME)["hints"] == 3
    assert "hint(" not in str(lab(WRONG)("held_bytes"))


def test_an_exercise_without_hints_and_one_that_is_unknown():
    check = Exercises("lab", Exercise("ring"))
    assert "no hints" in check.hint("ring").data
    with pytest.raises(ValueError, match="ring"):
        check.hint("rong")


def test_grades_are_worth_more_the_harder_they_are():
    points = [Exercise("one", grade=grade).points for grade in (WARM_UP, CORE, STRETCH)]
    assert points == sorted(points) and len({*points}) == 3


@pytest.mark.parametrize(
    "text", ["", "[1", "[]", json.dumps({NAME: 3}), json.dumps({NAME: {"attempts": [1], "hints": "2"}})]
)
def test_a_damaged_record_counts_as_empty_and_is_written_anew(answers_folder, text):
    answers_folder.mkdir()
    (answers_folder / record.FILE).write_text(text)
    assert record.exercise_record(NAME)["attempts"] == [] and record.exercise_record(NAME)["hints"] == 0
    answers.save(NAME, written("1"))
    assert len(record.exercise_record(NAME)["attempts"]) == 1


def test_a_folder_that_cannot_be_made_keeps_nothing_and_fails_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "file" / "answers"))
    assert "look there" in lab().hint("held_bytes").data
    record.keep_outcome(NAME, RIGHT, right=True)
    assert record.exercise_record(NAME)["right_at"] == ""
