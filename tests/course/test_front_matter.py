"""Every notebook begins and ends in one pattern, and no link of the course leads nowhere."""

from __future__ import annotations

import importlib
import json
import math
import re

import notebook_rules
import pytest
from course_texts import FOLDER, LESSONS, NOTEBOOKS, broken
from notebook_rules import is_answer

from labkit.course import lessons as course
from labkit.repository import RECORDED
from labkit.tables.published import report_names

TIMES = re.compile(r"(\d+) min to read; (\d+) s to run small on 2 CPU cores; full size: (.+)\.")
MACHINES = {
    "one H100": "h100",
    "one H200": "h200",
    "2 × H100": "h100x2",
    "2 × H200": "h200x2",
    "4 × H200": "h200x4",
    "2 network namespaces": "two_namespaces",
}
ON_A_MACHINE = re.compile(rf"(\d+) s (?:for the recorded runs )?on ({'|'.join(MACHINES)})")
PLAN = re.compile(r"\.([A-Z]\w+)\.sized\(([^\n]*)")  # a plan that a page launches, and its arguments
READ = re.compile(r'recorded\["(\w+)"\]')
WORDS_PER_MINUTE, MINUTES_PER_CODE_CELL = 120, 0.5  # of a text full of terms; of a cell with its table or chart
pytestmark = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


def tagged(lesson, tag):
    """Return place and text of the cells that carry a tag."""
    cells = NOTEBOOKS[lesson.name].cells
    return [(place, cell.source) for place, cell in enumerate(cells) if tag in cell.metadata.get("tags", [])]


def test_front_matter_stands_before_the_first_section_in_one_pattern(lesson):
    ((place, _),) = tagged(lesson, course.FRONT_MATTER)
    before = NOTEBOOKS[lesson.name].cells[1:place]
    assert not any(cell.source.startswith("## ") for cell in before)
    assert [*lesson.front_matter] == [label for label in course.LABELS if label in lesson.front_matter]
    assert {*course.LABELS} - {*lesson.front_matter} <= {course.REPORTS}
    assert all(lesson.front_matter.values())


def test_a_lesson_builds_on_earlier_lessons_and_says_what_comes_next(lesson):
    needed, builds_on = [*lesson.builds_on], {one.name: one.builds_on for one in LESSONS}
    for name in needed:  # which grows
        needed += [other for other in builds_on[name] if other not in needed]
    assert lesson.name not in needed, "two lessons are each to be known before the other"
    assert bool(lesson.builds_on) == (lesson is not LESSONS[0])
    assert course.LESSON_LINK.search(lesson.front_matter[course.NEXT])


def minutes(cells):
    """Return how long cells take to read; a student's own work takes longer than its reading, and is not counted."""
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    shown = sum(cell.cell_type == "code" and not is_answer(cell) for cell in cells)
    return words / WORDS_PER_MINUTE + shown * MINUTES_PER_CODE_CELL


def test_the_minutes_to_read_are_those_of_words_and_cells(lesson):
    notebook = NOTEBOOKS[lesson.name]
    low, high = 0.75 * minutes(notebook_rules.lesson(notebook)), 1.25 * minutes(notebook.cells)
    stated = int(TIMES.fullmatch(lesson.front_matter[course.TIME])[1])
    assert low <= stated <= high, f"{math.ceil(minutes(notebook.cells) / 5) * 5} min to read"


def test_the_time_at_full_size_is_that_of_recorded_runs(lesson):
    full = TIMES.fullmatch(lesson.front_matter[course.TIME])[3]
    if full in ("nothing is launched", "not measured"):
        return
    times = ON_A_MACHINE.findall(full)
    assert times and len(times) == full.count(" s ")
    took = recorded_seconds(lesson)
    assert {MACHINES[machine] for _, machine in times} == {name for name, seconds in took.items() if seconds}
    for seconds, machine in times:
        assert int(seconds) == pytest.approx(took[MACHINES[machine]], abs=1), machine


def recorded_seconds(lesson):
    """Return per machine how long the recorded runs took that a page launches or reads, but for those with bugs."""
    code = "\n".join(cell.source for cell in NOTEBOOKS[lesson.name].cells if cell.cell_type == "code")
    launched = [call[1].lower() for call in PLAN.finditer(code) if "suspects()" not in call[2]]
    paths = importlib.import_module(f"lessons.{lesson.name[3:]}").RECORDED
    seconds = dict.fromkeys(MACHINES.values(), 0.0)
    for name in {*launched, *READ.findall(code)} & {*paths}:
        status = json.loads((RECORDED / paths[name] / "status.json").read_text())
        seconds[paths[name].partition("/")[0]] += status["seconds"]
    return seconds


def test_a_report_is_introduced_before_its_short_name_is_used(lesson):
    cells = NOTEBOOKS[lesson.name].cells
    texts = [re.sub(r"\s+", " ", cell.source) for cell in cells]  # a chart's footer may name its source before
    for name in report_names().values():
        using = [place for place, text in enumerate(texts) if name in text]
        if using and "published_reports()" not in cells[using[0]].source:  # a table that says what each report is
            ((introduced, _),) = tagged(lesson, course.FRONT_MATTER)
            assert using[0] == introduced, f"{name!r} is used before it is introduced"
            assert name in lesson.front_matter[course.REPORTS]


def test_the_last_cell_lists_papers_and_manuals(lesson):
    ((place, text),) = tagged(lesson, "reading")
    assert place == len(NOTEBOOKS[lesson.name].cells) - 1
    assert len([target for _, target in course.LINK.findall(text) if target.startswith("https://")]) >= 3


def test_terms_link_to_the_glossary_where_they_come_up(lesson):
    cells = NOTEBOOKS[lesson.name].cells
    text = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    linked = {target for _, target in course.LINK.findall(text) if target.startswith("glossary.md#")}
    before = {target for line in lesson.front_matter.values() for _, target in course.LINK.findall(line)}
    assert len(linked) >= 7 and linked - before


def test_every_link_leads_somewhere(lesson):
    for cell in NOTEBOOKS[lesson.name].cells:
        if cell.cell_type == "markdown":
            assert [*broken(cell.source, FOLDER)] == []
