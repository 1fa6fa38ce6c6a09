"""Every exercise of every notebook is a solution's cell and a check's cell with its points, as nbgrader wants them."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.course import answers
from labkit.course.copies import NOTEBOOKS
from labkit.course.exercises import exercise_of
from labkit.course.grading.cells import checked_by, mark
from labkit.course.grading.submissions import answers_in

PAGES = sorted(NOTEBOOKS.glob("*.ipynb"))


def of_code(*sources: str):
    """Return a notebook of code cells."""
    return new_notebook(cells=[new_code_cell(source) for source in sources])


def marks(notebook) -> list:
    return [cell.metadata.get("nbgrader") for cell in notebook.cells]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_cells_of_exercises_are_marked_as_they_should_be(page):
    """`python -m labkit.tools.mark` sets the marks."""
    notebook = nbformat.read(page, as_version=4)
    before = marks(notebook)
    assert mark(notebook) == len(answers_in(notebook)), "an exercise has no cell that checks it"
    assert before == marks(notebook)


def test_every_exercise_has_its_points_in_one_notebook():
    points = {}
    for page in PAGES:
        for cell in nbformat.read(page, as_version=4).cells:
            if (name := checked_by(cell)) is not None:
                assert name not in points
                points[name] = cell.metadata["nbgrader"]["points"]
    assert points == {name: exercise_of(name).points for name in answers.exercises()}


def test_no_other_cell_is_marked_and_old_marks_go():
    task, check = "%%answer pipeline.one_f_one_b\n...", 'pipeline.check("one_f_one_b")'
    notebook = of_code(task, "size = 'auto'", check, 'other.check("a")')
    notebook.cells[1].metadata["nbgrader"] = {"grade": True, "points": 100, "grade_id": "mine"}
    assert mark(notebook) == 1
    assert [bool(one) for one in marks(notebook)] == [True, False, True, False]
    assert [one["solution"] for one in marks(notebook) if one] == [True, False]


def test_a_lab_may_be_imported_by_another_name():
    imported = "from lessons import ddp_from_scratch as ddp"
    assert mark(of_code(imported, "%%answer ddp_from_scratch.started\n...", 'ddp.check("started")')) == 1


@pytest.mark.parametrize("grade_id", ["check_no_such", "check_", "", "accounting_devices_needed"])
def test_marks_of_a_student_name_no_other_exercise(grade_id):
    cell = new_code_cell("1", metadata={"nbgrader": {"grade": True, "grade_id": grade_id}})
    assert checked_by(cell) is None
