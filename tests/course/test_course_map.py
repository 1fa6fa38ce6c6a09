"""The map: every lesson once, right of what it builds on, with the student's progress in words and colour."""

from __future__ import annotations

import json
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from labkit import course_map
from labkit.course import predict
from labkit.course.course_map import COLORS, CourseMap, progress
from labkit.course.lessons import Lesson, lessons
from labkit.course.record import FILE as RECORD


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


def boxes(drawing):
    """Return the corners of all boxes of a map: left, top, right, bottom."""
    svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", drawing, re.DOTALL)[0])
    width, height = map(float, svg.get("viewBox").split()[2:])
    found = []
    for rect in svg.iter("rect"):
        left, top, wide, high = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        found.append((left, top, left + wide, top + high))
        assert left >= 0 and left + wide <= width and top >= 0 and top + high <= height
    return found


def test_progress_counts_predictions_and_right_answers(folder):
    predict(QUESTION[0], unit=QUESTION[1]).take("3")
    predict("Never asked in these lessons?", unit="s").take("3")
    taken_back = predict("How many?", unit="GPUs")
    taken_back.take("3")
    taken_back.take("")
    kept = {"made.one": {"right_at": "2026-11-22 10:00:00"}, "made.two": {"right_at": ""}}
    (folder / RECORD).write_text(json.dumps(kept))
    rows = progress([FIRST, SECOND]).to_dict("records")
    counts = [[row[name] for name in ("predictions", "predicted", "exercises", "right")] for row in rows]
    assert counts == [[0, 0, 0, 0], [2, 1, 2, 1]]


@pytest.mark.parametrize("right, state", [((), "not begun"), (("one",), "begun"), (("one", "two"), "all done")])
def test_a_box_says_how_far_the_student_is(folder, right, state):
    if right:
        (folder / RECORD).write_text(json.dumps({f"made.{name}": {"right_at": "2026"} for name in right}))
        if len(right) == 2:
            for question, unit in SECOND.questions:
                predict(question, unit=unit).take("3")
    course = [FIRST, SECOND]
    made = CourseMap(course, progress(course))
    assert f"Made 01: why? after 00: {state}" in repr(made)
    assert f'stroke="{COLORS[state]}"' in made._repr_html_()


def test_an_arrow_that_follows_from_two_others_is_left_out():
    course = [FIRST, SECOND, THIRD]
    made = CourseMap(course, progress(course))
    assert made.arrows == [("00_made", "01_made"), ("01_made", "02_made")]
    assert made.columns == [["00_made"], ["01_made"], ["02_made"]]


def test_the_map_holds_every_lesson_once_right_of_what_it_builds_on():
    made, course = course_map(), lessons()
    places = {name: at for at, column in enumerate(made.columns) for name in column}
    assert {name for name in places if " > " not in name} == {one.name for one in course}
    assert all(places[before] < places[one.name] for one in course for before in one.builds_on)
    assert {after for _, after in made.arrows} == {one.name for one in course[1:]}


def test_boxes_of_the_map_lie_inside_and_apart():
    html = course_map()._repr_html_()
    found = boxes(html)
    assert len(found) == len(lessons())
    for one, other in combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert all(f'href="{lesson.name}.ipynb"' in html for lesson in lessons())
