"""The map: every lesson once, right of what it builds on, with the student's progress in words and colour."""

from __future__ import annotations

import re

import pytest

from labkit import course_map
from labkit.course import predict
from labkit.course.course_map import COLORS, CourseMap, progress
from labkit.course.lessons import Lesson, lessons
from labkit.course.record import update_exercise_record


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of answers of this test alone."""
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path))
    return tmp_path


def lesson(number, *after, questions=(), exercises=()):
    """Return a made lesson that builds on others."""
    known = " ".join(f"[lab]({name}.ipynb)" for name in after)
    return Lesson(f"{number}_made", f"Made {number}: why?", {"Know first": known}, questions, exercises)


QUESTION = ("How long?", "s")
FIRST = lesson("00")
SECOND = lesson("01", "00_made", questions=(QUESTION, ("How many?", "GPUs")), exercises=("made.one", "made.two"))
THIRD = lesson("02", "00_made", "01_made")


def test_progress_counts_predictions_and_right_answers(folder):
    predict(QUESTION[0], unit=QUESTION[1]).take("3")
    predict("Never asked in these lessons?", unit="s").take("3")
    taken_back = predict("How many?", unit="GPUs")
    taken_back.take("3")
    taken_back.take("")
    update_exercise_record("made.one", right_at="2026-11-22 10:00:00")
    update_exercise_record("made.two", right_at="")
    rows = progress([FIRST, SECOND]).to_dict("records")
    counts = [[row[name] for name in ("predictions", "predicted", "exercises", "right")] for row in rows]
    assert counts == [[0, 0, 0, 0], [2, 1, 2, 1]]


@pytest.mark.parametrize("right, state", [((), "not begun"), (("one",), "begun"), (("one", "two"), "all done")])
def test_a_box_says_how_far_the_student_is(folder, right, state):
    for name in right:
        update_exercise_record(f"made.{name}", right_at="2026")
        if len(right) == 2:
            for question, unit in SECOND.questions:
                predict(question, unit=unit).take("3")
    course = [FIRST, SECOND]
    made = CourseMap(course, progress(course))
    assert f"Made 01: why? after 00: {state}" in repr(made)
    assert f"solid {COLORS[state]}" in made._repr_html_()


def test_a_box_names_only_the_last_of_what_it_builds_on():
    course = [FIRST, SECOND, THIRD]
    made = CourseMap(course, progress(course))
    assert [made.after(one.name) for one in course] == [[], ["00_made"], ["01_made"]]
    assert made.columns == [["00_made"], ["01_made"], ["02_made"]]
    assert "after 01<" in made._repr_html_() and "after 00, 01" not in made._repr_html_()


def test_the_map_holds_every_lesson_once_right_of_what_it_builds_on():
    made, course = course_map(), lessons()
    names = [name for column in made.columns for name in column]
    assert sorted(names) == [one.name for one in course]
    places = {name: at for at, column in enumerate(made.columns) for name in column}
    assert all(places[before] < places[one.name] for one in course for before in one.builds_on)
    assert [one.name for one in course if not made.after(one.name)] == [course[0].name]
    links = re.findall(r'href="(\w+)\.ipynb"', made._repr_html_())
    assert sorted(links) == sorted(names)
