"""The teacher's guide says of each lesson what its notebook says, and names exercises and questions that there are."""

from __future__ import annotations

import importlib
import re

from course_texts import FOLDER, LESSONS, NOTEBOOKS, broken

from labkit.course.lessons import TIME

FIGURE = re.compile(r"(?:Measured|Computed|Simulated): (\d[\d\s]*(?:\.\d+)?)(?=[\s.])")
FIGURE_IN_THE_TABLE = re.compile(r"\d[\d\s]*(?:\.\d+)?(?=\s|$)")
GUIDE = (FOLDER / "teaching" / "README.md").read_text(encoding="utf-8")


def rows(heading):
    """Return the cells of the rows of the first table under a heading."""
    part = GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_needs_is_that_of_the_notebooks():
    table = {cells[0][1:3]: cells[1:] for cells in rows("What a lab needs")}
    assert [*table] == [lesson.number for lesson in LESSONS]
    for lesson in LESSONS:
        needs, read, small, full, _ = table[lesson.number]
        assert needs == (", ".join(name[:2] for name in lesson.builds_on) or "–")
        assert [read, small] == re.findall(r"\d+", lesson.front_matter[TIME])[:2]
        stated = re.search("full size: (.+)\\.", lesson.front_matter[TIME])[1].replace("for the recorded runs ", "")
        given, times = (
            [part for part in re.split(r" \(|, | and ", text) if " s on " in part] for text in (full, stated)
        )
        assert given == times and (times or full == stated)


def test_the_table_lists_each_lesson_s_exercises_with_their_points():
    for lesson, cells in zip(LESSONS, rows("What a lab needs"), strict=True):
        exercises = importlib.import_module(f"lessons.{lesson.name[3:]}").check.by_name
        assert re.findall(r"`(\w+)` \((\d)\)", cells[-1]) == [
            (name, str(one.points)) for name, one in exercises.items()
        ]
        assert {f"{lesson.name[3:]}.{name}" for name in exercises} == {*lesson.exercises}


def test_each_question_has_a_wrong_prediction_to_expect():
    listed = [cells[0] for cells in rows("Wrong predictions to expect")]
    assert listed == [lesson.number for lesson in LESSONS for _ in lesson.questions]


def compared(notebook):
    """Return with which figures a page's stored outputs compare its predictions, by the question, in its order."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    asked = [call[1] for cell in code for call in re.finditer(r"^(\w+) = predict\(", cell.source, flags=re.M)]
    figures = {}
    for cell in code:
        if call := re.search(r"^(\w+)\.compare\(", cell.source, flags=re.M):
            text = "".join(output.get("data", {}).get("text/markdown", "") for output in cell.outputs)
            figures[call[1]] = FIGURE.search(text)[1]
    return [figures[name] for name in asked]


def test_what_predictions_are_compared_with_is_what_the_recorded_runs_gave():
    table = iter(rows("Wrong predictions to expect"))
    for notebook in NOTEBOOKS.values():
        for figure in compared(notebook):
            assert FIGURE_IN_THE_TABLE.match(next(table)[-1])[0] == figure, notebook.cells[0].source


def test_exercises_that_the_guide_names_exist():
    labs = "|".join(lesson.name[3:] for lesson in LESSONS)
    named = re.findall(rf"`((?:{labs})\.[a-z_]+)`", GUIDE)
    assert named and {*named} <= {name for lesson in LESSONS for name in lesson.exercises}


def test_both_plans_hold_every_lab_or_say_what_is_left_out():
    twelve = " ".join(cells[1] for cells in rows("Twelve weeks"))
    six = " ".join(cells[1] for cells in rows("Six weeks")) + GUIDE.split("are left out")[0].rpartition("\n")[2]
    for lesson in LESSONS:
        assert lesson.number in twelve and lesson.number in six


def test_every_link_of_the_guide_leads_somewhere():
    assert [*broken(GUIDE, FOLDER / "teaching")] == []
