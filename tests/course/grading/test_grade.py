"""From handed-in folders to grades, with the commands behind make: what is read, and what is written, as text."""

import csv
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.course.copies import NOTEBOOKS
from labkit.course.grading import grade as grade_module
from labkit.course.grading.grade import asked
from labkit.course.grading.handout import hand_out, set_up_nbgrader
from labkit.course.grading.submissions import answers_in, submissions
from labkit.course.source import code_of
from labkit.tools import grade as grade_command
from labkit.tools import handout as handout_command

DEVICES = "accounting.devices_needed"
RIGHT = code_of("lessons.accounting.solutions.devices_needed")
SCRIPT = "<script>alert('x')</script>"


def hand_in(folder, *cells: str):
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in cells]), folder / "12_accounting.ipynb")


def cell(code: str, name: str = DEVICES) -> str:
    return f"%%answer {name}\n{code}"


@pytest.fixture
def handed_in(tmp_path):
    folder = tmp_path / "submissions"
    hand_in(folder / "ada", cell(RIGHT))
    hand_in(folder / "=cmd|' '!A0", cell(RIGHT.replace("ceil(", "int(")))
    hand_in(folder / f"eve {SCRIPT.replace('/', '')}", cell(f"print({SCRIPT!r})\nraise ValueError({SCRIPT!r})"))
    (folder / "bob").mkdir()
    (folder / "bob" / "12_accounting.ipynb").write_text("no notebook")
    (folder / "carl").mkdir()
    (folder / "carl" / "accounting_devices_needed.py").write_text(RIGHT)
    return folder


def test_the_whole_way_from_submissions_to_grades(handed_in, tmp_path, capsys):
    out = tmp_path / "grades"
    assert grade_command.main([str(handed_in), "--out", str(out), "--seconds", "10", "--jobs", "2"]) == 0
    rows = list(csv.DictReader((out / "grades.csv").open(encoding="utf-8")))
    points = {row["student"]: int(row["points"]) for row in rows if row["exercise"] == DEVICES}
    assert points.pop("ada") == points.pop("carl") == 1
    assert {*points.values()} == {0} and len(points) == 3
    assert {row["exercise"] for row in rows} == {DEVICES, "accounting.compute_bound_batch"}
    assert "'=cmd|' '!A0" in points, "a spreadsheet would compute a cell that begins with ="
    texts = [page.read_text(encoding="utf-8") for page in out.glob("*.html")]
    assert len(texts) == 6 and not any("<script>" in text for text in texts)
    assert any("&lt;script&gt;alert" in text for text in texts), "what a student wrote is there, as text"
    printed = capsys.readouterr().out
    assert "ada: 1 of 4 points" in printed and "cannot be read" in printed


def test_an_answer_that_its_judge_fails_on_does_not_end_the_others(handed_in, tmp_path, monkeypatch):
    judged = grade_module.judge

    def failing(exercise, name, code, student, **more):
        if student == "ada":
            raise OSError("no process could be started")
        return judged(exercise, name, code, student, **more)

    monkeypatch.setattr(grade_module, "judge", failing)
    assert grade_command.main([str(handed_in), "--out", str(tmp_path), "--notebooks", "12", "--seconds", "10"]) == 0
    rows = list(csv.DictReader((tmp_path / "grades.csv").open(encoding="utf-8")))
    (ada,) = [row for row in rows if row["student"] == "ada" and row["exercise"] == DEVICES]
    assert "no process could be started" in ada["why"] and ada["points"] == "0"
    assert [row["points"] for row in rows if row["student"] == "carl" and row["exercise"] == DEVICES] == ["1"]


def test_a_notebook_may_lie_beside_the_others_by_its_students_name(tmp_path):
    hand_in(tmp_path / "x", cell("1"))
    (tmp_path / "x" / "12_accounting.ipynb").rename(tmp_path / "ada.ipynb")
    (tmp_path / "x").rmdir()
    assert [(one.student, one.code) for one in submissions(tmp_path)] == [("ada", {DEVICES: "1"})]


def test_the_last_cell_counts_and_other_names_are_told(tmp_path):
    hand_in(tmp_path / "ada", cell("first"), cell("last"), cell("x", "no.such"), "%%answer", "print(1)")
    (one,) = submissions(tmp_path)
    assert one.code == {DEVICES: "last"}
    assert "no.such" in " ".join(one.problems)


def test_links_lead_nowhere(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("another's answer")
    folder = tmp_path / "submissions" / "ada"
    folder.mkdir(parents=True)
    (folder / "accounting_devices_needed.py").symlink_to(secret)
    (folder.parent / "link").symlink_to(tmp_path)
    (one,) = submissions(folder.parent)
    assert one.student == "ada" and one.code == {}


def test_exercises_are_those_that_somebody_answered_or_that_are_named(tmp_path):
    hand_in(tmp_path / "ada", cell("1"))
    found = submissions(tmp_path)
    assert asked(found) == [DEVICES, "accounting.compute_bound_batch"]
    assert {name.partition(".")[0] for name in asked(found, ["pipeline"])} == {"pipeline"}


@pytest.mark.parametrize("arguments", [["/no/such/folder"], ["."], ["FOLDER", "--notebooks", "77"]])
def test_a_wrong_call_ends_in_a_sentence(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "full" / "ada", cell("1"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert grade_command.main([str(tmp_path / "full") if one == "FOLDER" else one for one in arguments]) == 2
    assert "make grade" in capsys.readouterr().err


def test_a_handout_holds_all_notebooks_without_outputs_and_no_solution(tmp_path, capsys):
    folder = tmp_path / "handout"
    assert handout_command.main(["--folder", str(folder)]) == 0
    assert {page.name for page in folder.glob("*.ipynb")} == {page.name for page in NOTEBOOKS.glob("*.ipynb")}
    for page in folder.glob("*.ipynb"):
        notebook = nbformat.read(page, as_version=4)
        assert not any(one.get("outputs") for one in notebook.cells)
        assert all("..." in code for code in answers_in(notebook).values())
    with zipfile.ZipFile(tmp_path / "handout.zip") as archive:
        names = archive.namelist()
    assert "handout/02_broadcast.ipynb" in names and not any(
        "solution" in name or name.endswith(".py") for name in names
    )


def test_a_notebook_that_holds_an_answer_is_not_handed_out(tmp_path):
    notebooks = tmp_path / "notebooks"
    hand_in(notebooks, cell(RIGHT))
    with pytest.raises(ValueError, match="holds an answer"):
        hand_out(tmp_path / "handout", (), notebooks)
    assert not (tmp_path / "handout").exists()


def test_a_folder_with_other_things_in_it_is_not_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert handout_command.main(["--folder", str(tmp_path / "mine"), "00"]) == 2
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_nbgraders_course_has_an_assignment_for_each_notebook_with_exercises(tmp_path):
    notebooks = tmp_path / "notebooks"
    hand_in(notebooks, cell("def devices_needed(gib, gb):\n    ...\n"))
    nbformat.write(new_notebook(cells=[new_code_cell("1")]), notebooks / "98_none.ipynb")
    assert set_up_nbgrader(tmp_path / "course", (), notebooks) == ["12_accounting"]
    assert (tmp_path / "course" / "source" / "12_accounting" / "12_accounting.ipynb").exists()
    compile((tmp_path / "course" / "nbgrader_config.py").read_text(), "nbgrader_config.py", "exec")
