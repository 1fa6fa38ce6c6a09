"""From handed-in folders to grades, with the commands behind make: what is read, and what is written, as text."""

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
import socket
import subprocess
import sys
import tracemalloc
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.course import answers
from labkit.course.copies import NOTEBOOKS
from labkit.course.grading import confine
from labkit.course.grading import grade as grade_module
from labkit.course.grading.grade import exercises_to_grade
from labkit.course.grading.grade_pages import TABLE_SCRIPT
from labkit.course.grading.handout import hand_out
from labkit.course.grading.submissions import answers_in, submissions
from labkit.course.source import code_of
from labkit.course.verdict import UNANSWERED, Verdict
from labkit.repository import REPOSITORY
from labkit.tools import grade as grade_command
from labkit.tools import handout as handout_command

DEVICES = "accounting.devices_needed"
RIGHT = code_of("lessons.accounting.solutions.devices_needed")
SKELETON = "def devices_needed(gib, gb):\n    ...  # one unit for both\n"
SCRIPT = "<script>alert('x')</script>"


def hand_in(folder, *cells: str):
    folder.mkdir(parents=True, exist_ok=True)
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    nbformat.write(notebook, folder / "12_accounting.ipynb", ensure_ascii=True)  # so that half a pair can be in it


def cell(code: str, name: str = DEVICES) -> str:
    return f"%%answer {name}\n{code}"


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class") / "submissions"
    hand_in(folder / "ada", cell(RIGHT))
    hand_in(folder / "=cmd|' '!A0", cell(RIGHT.replace("ceil(", "int(")))
    hand_in(folder / f"eve {SCRIPT.replace('/', '')}", cell(f"print({SCRIPT!r})\nraise ValueError({SCRIPT!r})"))
    (folder / "bob").mkdir()
    (folder / "bob" / "12_accounting.ipynb").write_text("no notebook")
    (folder / "carl").mkdir()
    (folder / "carl" / "accounting_devices_needed.py").write_text(RIGHT)
    return folder


@pytest.fixture(scope="module")
def graded(handed_in, tmp_path_factory, confined):
    """Return the folder of the class's grades, and what the command printed."""
    out = tmp_path_factory.mktemp("graded")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert grade_command.main([str(handed_in), "--out", str(out), "--seconds", "10", "--jobs", "2"]) == 0
    return out, printed.getvalue()


def of_devices(out) -> dict[str, dict[str, str]]:
    """Return the rows of one exercise in the file of grades, by student."""
    rows = csv.DictReader((out / "grades.csv").open(encoding="utf-8"))
    return {row["student"]: row for row in rows if row["exercise"] == DEVICES}


def test_the_index_is_a_matrix_of_the_class(graded):
    out, _ = graded
    index = (out / "index.html").read_text(encoding="utf-8")
    lesson, heads, *rows = index.split("<tr>")[1:]
    assert 'colspan="2" title="accounting">12</th>' in lesson and ">devices_needed · 1</button>" in heads
    assert [*map(int, re.findall('data-column="(.)"', lesson + heads))] == [0, 1, 4, 2, 3], "in the order of the page"
    row = {line.partition('.html">')[2].partition("<")[0]: line for line in rows}
    assert ">1</td>" in row["ada"] and 'accounting.compute_bound_batch: not answered yet">–</td>' in row["ada"]
    assert any(f'{DEVICES}: raised">0</td>' in line for name, line in row.items() if name.startswith("eve"))
    assert "<code>" in (pages := "".join(page.read_text(encoding="utf-8") for page in out.glob("*-00*.html")))
    assert "`" not in re.sub("<style>.*?</style>|<pre.*?</pre>", "", pages, flags=re.DOTALL)
    assert "<th>Mean of 5</th>" in index and ">0.4</td>" in index.split("Mean of 5")[1], "two of five are right"
    assert all("href=" not in page.read_text(encoding="utf-8") for page in out.glob("*-00*.html"))


def test_the_whole_way_from_submissions_to_grades(graded):
    out, printed = graded
    points = {student: row["points"] for student, row in of_devices(out).items()}
    assert sorted(student for student in points if points[student] == "1") == ["ada", "carl"] and len(points) == 5
    assert "'=cmd|' '!A0" in points, "a spreadsheet would compute a cell that begins with ="
    texts = [page.read_text(encoding="utf-8") for page in out.glob("*.html")]
    assert len(texts) == 6 and not any("<script>" in text.replace(TABLE_SCRIPT, "") for text in texts)
    assert any("&lt;script&gt;alert" in text for text in texts), "what a student wrote is there, as text"
    assert "ada: 1 of 4 points" in printed and "cannot be read" in printed


def test_nothing_is_started_for_a_skeleton_or_an_empty_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(grade_module, "judge", lambda *_, **__: pytest.fail("an answer was tried"))
    pages = [nbformat.read(page, as_version=4) for page in NOTEBOOKS.glob("*.ipynb")]
    skeletons = {name: code for page in pages for name, code in answers_in(page).items()}
    assert {*skeletons} == {*answers.exercises()}
    hand_in(tmp_path / "as handed out", *(cell(code, name) for name, code in skeletons.items()))
    hand_in(tmp_path / "commented", *(cell(f"# mine\n\n{code}  # later", name) for name, code in skeletons.items()))
    hand_in(tmp_path / "empty", *(cell(" \n# nothing\n", name) for name in skeletons))
    for rows in grade_module.grade(submissions(tmp_path), answers.exercises()):
        assert {row.verdict.outcome for row in rows} == {UNANSWERED}
        why = grade_module.EMPTY if rows[0].student == "empty" else grade_module.SKELETON
        assert {row.verdict.merits for row in rows} == {(why,)}


def test_any_change_of_a_skeleton_is_tried(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(grade_module, "judge", lambda *_, **__: tried.append(1) or Verdict("", UNANSWERED, {}))
    skeleton = "\n".join(grade_module.skeletons()[DEVICES])
    hand_in(tmp_path / "ada", cell(f"{skeleton}\n    return 1"))
    assert [*grade_module.grade(submissions(tmp_path), [DEVICES])] and tried


@pytest.mark.usefixtures("confined")
def test_an_answer_that_its_judge_fails_on_does_not_end_the_others(handed_in, tmp_path, monkeypatch):
    judged = grade_module.judge

    def failing(exercise, name, code, student, **more):
        if student == "ada":
            raise OSError("no process could be started")
        return judged(exercise, name, code, student, **more)

    monkeypatch.setattr(grade_module, "judge", failing)
    assert grade_command.main([str(handed_in), "--out", str(tmp_path), "--notebooks", "12", "--seconds", "10"]) == 0
    rows = of_devices(tmp_path)
    assert "no process could be started" in rows["ada"]["why"] and rows["ada"]["points"] == "0"
    assert rows["carl"]["points"] == "1"


def test_no_answer_runs_where_the_trial_answer_gets_out(handed_in, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(confine, "confinement_fault", lambda: "an answer could open a socket")
    confine.require_confinement.cache_clear()
    assert grade_command.main([str(handed_in), "--out", str(tmp_path / "grades")]) == 2
    assert "no answer was run" in (said := capsys.readouterr().err) and "could open a socket" in said
    assert not (tmp_path / "grades").exists()
    with pytest.raises(confine.Unconfined):
        confine.run({}, "answer.py", confine.Limits())


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.slow
def test_names_and_code_that_are_no_text_are_graded_and_told(tmp_path, encoding):
    jorg = tmp_path / "submissions" / os.fsdecode(b"j\xf6rg")
    hand_in(jorg, cell(RIGHT))
    (jorg / os.fsdecode(b"\xff.ipynb")).write_text("no notebook")
    hand_in(tmp_path / "submissions" / "zoë \u03a9", cell("x = '\ud800'"), cell("1", "no.\ud800"))
    command = [sys.executable, "-m", "labkit.tools.grade", tmp_path / "submissions", "--out", tmp_path / "grades"]
    own = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=own, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"rg: 1 of 4 points" in done.stdout
    points = {student: row["points"] for student, row in of_devices(tmp_path / "grades").items()}
    assert points == {"j\\udcf6rg": "1", "zoë Ω": "0"}
    assert len([page.read_text(encoding="utf-8") for page in (tmp_path / "grades").glob("*.html")]) == 3


V3 = '{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"metadata": {}, "cells": [%s]}]}'
HOSTILE = {
    "format 1": '{"nbformat": 1, "cells": [{"cell_type": "x"}]}',
    "a minor that is text": '{"nbformat": 3, "nbformat_minor": "x"}',
    "an infinite number": V3 % '{"cell_type": "code", "input": "", "outputs": [], "prompt_number": Infinity}',
    "a large heading": V3 % '{"cell_type": "heading", "level": 1000000000, "source": "x", "metadata": {}}',
    "a huge heading": V3 % f'{{"cell_type": "heading", "level": 1{"0" * 30}, "source": "x", "metadata": {{}}}}',
    "cells that are no list": '{"nbformat": 4, "cells": 7}',
    "a source that is a number": '{"nbformat": 4, "cells": [{"cell_type": "code", "source": 7}]}',
    "nested": "[" * 100_000,
    "no notebook": '"text"',
}


def test_no_notebook_ends_the_grading_of_the_others(tmp_path):
    for student, text in HOSTILE.items():
        (tmp_path / student).mkdir()
        (tmp_path / student / "12_accounting.ipynb").write_text(text)
    hand_in(tmp_path / "ada", cell(RIGHT))
    tracemalloc.start()
    found = {submission.student: submission for submission in submissions(tmp_path)}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found["ada"].code == {DEVICES: RIGHT} and found["ada"].problems == []
    assert all(found[student].problems and not found[student].code for student in HOSTILE)
    assert peak < 50 * 2**20


def test_a_notebook_of_format_3_is_read(tmp_path):
    (tmp_path / "ada").mkdir()
    lines = json.dumps([f"%%answer {DEVICES}\n", *RIGHT.splitlines(keepends=True)])
    for name, text in (("lines", lines), ("text", json.dumps(cell(RIGHT)))):
        (tmp_path / f"{name}.ipynb").write_text(V3 % f'{{"cell_type": "code", "input": {text}, "outputs": []}}')
    assert [one.code for one in submissions(tmp_path)][1:] == [{DEVICES: RIGHT}] * 2


def test_cells_and_files_without_end_are_told_in_a_few_lines(tmp_path):
    hand_in(tmp_path / "ada", *(cell("1", f"no.such{number}") for number in range(100)))
    (tmp_path / "ada" / "many").mkdir()
    for number in range(300):
        (tmp_path / "ada" / "many" / f"{number:03d}.ipynb").write_text('{"cells": []}')
    (ada,) = submissions(tmp_path)
    assert len(ada.problems) < 20 and any("files" in problem for problem in ada.problems)


@pytest.mark.usefixtures("confined")
def test_a_name_is_no_formula_whatever_separates_the_columns(tmp_path):
    for name in ("x;=1+1;y", "＝1+1", "\u202egnorts", "a\x1b[2J"):
        hand_in(tmp_path / "submissions" / name, cell(RIGHT))
    assert grade_command.main([str(tmp_path / "submissions"), "--out", str(tmp_path / "grades")]) == 0
    text = (tmp_path / "grades" / "grades.csv").read_text(encoding="utf-8")
    assert '"x;\'=1+1;y"' in text, "some programs separate columns at each semicolon"
    assert not any(character in text for character in "\u202e\x1b") and '"\'＝1+1"' in text
    pages = [page.read_text(encoding="utf-8") for page in (tmp_path / "grades").glob("*.html")]
    assert not any(character in page for page in pages for character in "\u202e\x1b")


def test_a_file_with_a_byte_order_mark_is_read_as_any_other(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "accounting_devices_needed.py").write_text(RIGHT, encoding="utf-8-sig")
    assert submissions(tmp_path)[0].code == {DEVICES: RIGHT}


@pytest.mark.parametrize("wrong", ["nan", "inf", "0", "-1", "soon"])
def test_a_time_that_never_ends_an_answer_is_refused(handed_in, capsys, wrong):
    with pytest.raises(SystemExit) as stop:
        grade_command.main([str(handed_in), f"--seconds={wrong}"])
    assert stop.value.code == 2 and f"invalid seconds value: '{wrong}'" in capsys.readouterr().err


def test_grades_that_cannot_be_written_are_one_sentence(handed_in, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "grades"):
        assert grade_command.main([str(handed_in), "--out", str(out)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.usefixtures("confined")
def test_names_command_no_terminal_and_pages_of_former_students_go(tmp_path, capsys):
    (tmp_path / "submissions" / "ada\x1b[2J\nbob: 9 of 9 points").mkdir(parents=True)
    (tmp_path / "grades").mkdir()
    for name in ("eve-001.html", "grade notes.html"):
        (tmp_path / "grades" / name).write_text("")
    assert grade_command.main([str(tmp_path / "submissions"), "--out", str(tmp_path / "grades")]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and r"ada\x1b[2J\nbob: 9 of 9 points: 0 of " in said
    pages = [file.name for file in sorted((tmp_path / "grades").glob("*.html"))]
    assert len(pages) == 3 and pages[0].startswith("ada_") and "grade notes.html" in pages


@pytest.mark.timeout(30)
def test_what_is_no_regular_file_is_told_and_not_opened(tmp_path):
    folder = tmp_path / "ada"
    hand_in(folder, cell("1"))
    os.mkfifo(folder / "pipe.ipynb")
    os.mkfifo(folder / "accounting_devices_needed.py")
    os.mkfifo(tmp_path / "bob.ipynb")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(folder / "socket.ipynb"))
        ada, bob = submissions(tmp_path)
    assert ada.code == {DEVICES: "1"} and bob.code == {}
    told = " ".join(problem.partition(" ")[0] for problem in ada.problems + bob.problems)
    assert told == "accounting_devices_needed.py pipe.ipynb socket.ipynb bob.ipynb"


def test_folders_in_folders_without_end_are_read_to_a_depth(tmp_path):
    hand_in(tmp_path / "ada" / "notebooks", cell("1"))
    start = os.open(tmp_path / "ada", os.O_RDONLY)
    for _ in range(1100):  # more than calls may be nested
        os.mkdir("d", dir_fd=start)
        inner = os.open("d", os.O_RDONLY, dir_fd=start)
        os.close(start)
        start = inner
    os.close(start)
    try:
        assert [one.code for one in submissions(tmp_path)] == [{DEVICES: "1"}]
    finally:
        subprocess.run(["rm", "-r", tmp_path / "ada"], check=True)


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("fails", [KeyboardInterrupt, OSError])
def test_students_who_were_graded_have_their_pages_when_grading_ends_early(handed_in, tmp_path, monkeypatch, fails):
    grade_one = grade_module._graded

    def failing(submission, *more):
        if submission.student == "carl":
            raise fails("no space is left")
        return grade_one(submission, *more)

    monkeypatch.setattr(grade_module, "_graded", failing)
    arguments = [str(handed_in), "--out", str(tmp_path / "grades"), "--seconds", "10", "--jobs", "1"]
    with pytest.raises(fails):
        grade_command.main(arguments)
    assert {*of_devices(tmp_path / "grades")} == {"'=cmd|' '!A0", "ada", "bob"}
    index = (tmp_path / "grades" / "index.html").read_text(encoding="utf-8")
    assert len([page for page in (tmp_path / "grades").glob("*-00*.html") if page.name in index]) == 3


def test_a_notebook_may_lie_beside_the_others_by_its_students_name(tmp_path):
    hand_in(tmp_path, cell("1"))
    (tmp_path / "12_accounting.ipynb").rename(tmp_path / "ada.ipynb")
    assert [(one.student, one.code) for one in submissions(tmp_path)] == [("ada", {DEVICES: "1"})]


def test_the_last_cell_counts_and_other_names_are_told(tmp_path):
    hand_in(tmp_path / "ada", cell("first"), cell("last"), cell("x", "no.such"), "%%answer", "print(1)")
    (one,) = submissions(tmp_path)
    assert one.code == {DEVICES: "last"}
    assert "no.such" in " ".join(one.problems)


@pytest.mark.parametrize("skeleton", [SKELETON, SKELETON.replace("\n", "\r\n")], ids=["lines", "lines of Windows"])
@pytest.mark.parametrize("answered", ["accounting_devices_needed.py", "notebooks", "the same notebook"])
def test_a_skeleton_replaces_no_answer(tmp_path, answered, skeleton):
    """As after `make reset`: the copy of the notebook is new, and the answer lies in a file, or in an older copy."""
    folder = tmp_path / "ada"
    hand_in(folder / "work", *([cell(RIGHT)] if answered == "the same notebook" else []), cell(skeleton))
    if answered == "notebooks":
        hand_in(folder / "notebooks", cell(RIGHT))
    elif answered.endswith(".py"):
        (folder / answered).write_text(RIGHT)
    assert submissions(tmp_path)[0].code == {DEVICES: RIGHT}


def test_a_cell_with_dots_counts_where_no_answer_is(tmp_path):
    hand_in(tmp_path / "ada", cell(f"{SKELETON}    return 1"))
    (tmp_path / "ada" / "accounting_devices_needed.py").write_text(SKELETON)
    assert submissions(tmp_path)[0].code == {DEVICES: f"{SKELETON}    return 1"}


def test_code_that_crashes_python_does_not_end_the_reading(tmp_path):
    crashing = "x = [1 " + "for a in b " * 100_000 + "]"
    hand_in(tmp_path / "ada", cell(crashing))
    (tmp_path / "ada" / "accounting_devices_needed.py").write_text(RIGHT)
    assert submissions(tmp_path)[0].code == {DEVICES: crashing}


def test_every_skeleton_of_the_notebooks_is_known_as_one(tmp_path):
    pages = [nbformat.read(page, as_version=4) for page in NOTEBOOKS.glob("*.ipynb")]
    skeletons = {name: code for page in pages for name, code in answers_in(page).items()}
    hand_in(tmp_path / "ada", *(cell(code, name) for name, code in skeletons.items()))
    for name in skeletons:
        (tmp_path / "ada" / answers.file_of(name).name).write_text("answered")
    assert skeletons and submissions(tmp_path)[0].code == dict.fromkeys(skeletons, "answered")


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
    assert exercises_to_grade(found) == [DEVICES, "accounting.compute_bound_batch"]
    assert {name.partition(".")[0] for name in exercises_to_grade(found, ["pipeline"])} == {"pipeline"}


@pytest.mark.parametrize("arguments", [["/no/such/folder"], ["."], ["FOLDER", "--notebooks", "77"]])
def test_a_wrong_call_ends_in_a_sentence(handed_in, tmp_path, monkeypatch, capsys, arguments):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert grade_command.main([str(handed_in) if one == "FOLDER" else one for one in arguments]) == 2
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
    assert "handout/02_broadcast.ipynb" in names
    assert [name for name in names if "solution" in name or name.endswith(".py")] == []


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


@pytest.mark.parametrize(("quota", "jobs"), [(7.65, 7), (0.5, 1), (None, 96)])
def test_as_many_answers_at_a_time_as_the_control_group_allows(quota, jobs, tmp_path, monkeypatch):
    taken = []
    limited = dataclasses.replace(grade_command.here(), cores=96, quota_cores=quota)
    monkeypatch.setattr(grade_command, "here", lambda: limited)
    monkeypatch.setattr(grade_command, "submissions", lambda folder: [])
    monkeypatch.setattr(grade_command.confine, "require_confinement", lambda: None)
    monkeypatch.setattr(grade_command.confine, "side_by_side", lambda: True)
    monkeypatch.setattr(grade_command, "grade", lambda *_, jobs, **more: taken.append(jobs) or [])
    assert grade_command.main([str(tmp_path), "--out", str(tmp_path / "grades")]) == 0
    assert taken == [jobs]
