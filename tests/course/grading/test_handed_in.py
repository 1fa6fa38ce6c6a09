"""Who handed in what: notebooks however they were saved, copies of them, zips, and what nobody wrote."""

import csv
import json
import os
import stat
import tracemalloc
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.course.grading import handed_files
from labkit.course.grading.submissions import left_out, submissions
from labkit.course.source import code_of
from labkit.tools import grade as grade_command

DEVICES = "accounting.devices_needed"
RIGHT = code_of("lessons.accounting.solutions.devices_needed")
WRONG = "def devices_needed(*_, **__):\n    return 1\n"
CELL = f"%%answer {DEVICES}\n{RIGHT}"


def notebook(*cells: str) -> dict:
    """Return a notebook as a dictionary."""
    return json.loads(nbformat.writes(new_notebook(cells=[new_code_cell(source) for source in cells])))


def write(file, *cells: str, at: float | None = None):
    """Write a notebook, saved at a time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(notebook(*cells)))
    if at is not None:
        os.utime(file, (at, at))


def one_of(folder):
    """Return the only submission of a folder."""
    (submission,) = submissions(folder)
    return submission


def changed(change) -> dict:
    made = notebook(CELL)
    change(made, made["cells"][0])
    return made


def _colab(made, cell):
    made["nbformat_minor"], cell["metadata"]["id"] = 0, cell.pop("id")
    made["metadata"]["colab"] = {"provenance": []}


V3_CELL = {"cell_type": "code", "collapsed": False, "input": CELL.splitlines(True), "language": "python", "outputs": []}
SAVED_AS = {
    "without ids": changed(lambda made, cell: (cell.pop("id"), made.update(nbformat_minor=4))),
    "4.5 without ids": changed(lambda made, cell: cell.pop("id")),
    "Colab": changed(_colab),
    "Kaggle": changed(lambda made, cell: (cell.pop("id"), cell["metadata"].update({"_uuid": "1", "trusted": True}))),
    "VS Code": changed(lambda made, cell: (cell.pop("id"), cell["metadata"].update(vscode={"languageId": "python"}))),
    "no outputs": changed(lambda made, cell: (cell.pop("outputs"), cell.pop("execution_count"))),
    "a source of one text": changed(lambda made, cell: cell.update(source=CELL)),
    "a text cell without a text": changed(lambda made, cell: made["cells"].append({"cell_type": "markdown"})),
    "no worksheets": changed(lambda made, cell: made.update(worksheets=None)),
    "format 3": {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [V3_CELL]}]},
    "format 2": {"nbformat": 2, "worksheets": [{"cells": [V3_CELL]}]},
}


@pytest.mark.parametrize("made", SAVED_AS.values(), ids=SAVED_AS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_notebook_is_read_however_it_was_saved(tmp_path, made, encoding):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "12_accounting.ipynb").write_text(json.dumps(made), encoding=encoding)
    ada = one_of(tmp_path)
    assert {name: code.strip() for name, code in ada.code.items()} == {DEVICES: RIGHT.strip()} and not ada.problems


@pytest.mark.parametrize(
    "name",
    [
        "12_accounting (1).ipynb",
        "12_accounting-Copy1.ipynb",
        "my lab.IPYNB",
        "12.ipynb.txt",
        "12.ipynb.json",
        "ü.ipynb",
    ],
)
def test_a_notebook_may_have_any_name(tmp_path, name):
    write(tmp_path / "ada" / name, CELL)
    assert one_of(tmp_path).code == {DEVICES: RIGHT}


@pytest.mark.parametrize("name", ["accounting_devices_needed (2).py", "accounting_devices_needed-Copy1.py"])
def test_the_copy_of_a_file_is_one(tmp_path, name):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / name).write_text(RIGHT)
    assert one_of(tmp_path).code == {DEVICES: RIGHT}


def test_what_the_notebook_refuses_is_told_as_it_is(tmp_path):
    write(tmp_path / "ada" / "12.ipynb", f"# mine\n{CELL}", CELL.replace(DEVICES, f"{DEVICES} please"), "%%answer")
    told = " ".join(one_of(tmp_path).problems)
    assert f"`%%answer {DEVICES}` is not graded: a notebook does not run its cell as an answer" in told
    assert f"`%%answer {DEVICES} please` names no exercise" in told and "there is no notebook" not in told
    text = new_notebook(cells=[new_markdown_cell(CELL)])
    nbformat.write(text, tmp_path / "ada" / "12.ipynb")
    assert "stands in a cell that is not code (markdown)" in " ".join(one_of(tmp_path).problems)


@pytest.mark.parametrize("copy", ["12_accounting (1).ipynb", "12_accounting-Copy1.ipynb", "old/12_accounting.ipynb"])
@pytest.mark.parametrize("newer", ["copy", "first"])
def test_of_several_notebooks_the_newest_counts_and_both_are_told(tmp_path, copy, newer):
    folder = tmp_path / "ada"
    for name, is_newer in (("12_accounting.ipynb", newer == "first"), (copy, newer == "copy")):
        write(folder / name, CELL if is_newer else f"%%answer {DEVICES}\n{WRONG}", at=2e9 if is_newer else 1e9)
    ada = one_of(tmp_path)
    counts, other = (copy, "12_accounting.ipynb") if newer == "copy" else ("12_accounting.ipynb", copy)
    (told,) = ada.problems
    assert ada.code == {DEVICES: RIGHT} and told.startswith(
        f"2 files answer {DEVICES} differently: {counts} (saved 2033"
    )
    assert "counts (the newest" in told and told.partition("not counted:")[2].startswith(f" {other} (saved 2001")


def test_of_equal_times_the_copy_counts_and_equal_answers_are_not_told(tmp_path):
    for name, code in (("9 (9)", WRONG), ("9 (10)", RIGHT), ("9", WRONG)):
        write(tmp_path / "ada" / f"{name}.ipynb", f"%%answer {DEVICES}\n{code}", at=1e9)
    assert one_of(tmp_path).code == {DEVICES: RIGHT}
    for name in ("9 (9)", "9"):
        write(tmp_path / "ada" / f"{name}.ipynb", CELL, at=1e9)
    assert one_of(tmp_path).problems == []


def test_a_newer_skeleton_replaces_no_answer(tmp_path):
    write(tmp_path / "ada" / "12.ipynb", CELL, at=1e9)
    write(tmp_path / "ada" / "12 (1).ipynb", f"%%answer {DEVICES}\ndef devices_needed(gib, gb):\n    ...\n", at=2e9)
    ada = one_of(tmp_path)
    assert (ada.code, ada.problems) == ({DEVICES: RIGHT}, [])


def pack(file, members: dict, at=(2026, 11, 28, 10, 0, 0), **more):
    """Write a zip; a member may be a text, or a text and a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            text, saved = text if isinstance(text, tuple) else (text, at)
            member = zipfile.ZipInfo(name, saved)
            member.compress_type = more.get("method", zipfile.ZIP_DEFLATED)
            archive.writestr(member, text)


def test_a_zip_is_read_as_a_folder_and_by_its_own_times(tmp_path):
    wrong, right = json.dumps(notebook(f"%%answer {DEVICES}\n{WRONG}")), json.dumps(notebook(CELL))
    members = {
        "work\\12 (1).ipynb": (right, (2026, 11, 28, 10, 0, 2)),
        "work/12.ipynb": wrong,
        "__MACOSX/._12.ipynb": b"\0\5",
        ".ipynb_checkpoints/12.ipynb": (wrong, (2027, 1, 1, 0, 0, 0)),
        "report.pdf": "text",
        "inner.zip": "text",
    }
    pack(tmp_path / "bob.zip", members)
    (tmp_path / "eve").mkdir()
    pack(tmp_path / "eve" / "Homework.ZIP", members)
    bob, eve = submissions(tmp_path)
    assert (bob.student, bob.code) == ("bob", {DEVICES: RIGHT}) and eve.code == bob.code
    assert bob.problems[0].startswith(
        f"2 files answer {DEVICES} differently: bob.zip/work/12 (1).ipynb (saved 2026-11-28"
    )
    assert bob.problems[1:] == ["not read: bob.zip/report.pdf, bob.zip/inner.zip"]


def test_a_folder_and_a_zip_of_a_name_are_one_students(tmp_path):
    write(tmp_path / "bob" / "12.ipynb", f"%%answer {DEVICES}\n{WRONG}", at=1e9)
    pack(tmp_path / "bob.zip", {"12.ipynb": json.dumps(notebook(CELL))})
    bob = one_of(tmp_path)
    assert bob.code == {DEVICES: RIGHT} and "not counted: 12.ipynb" in bob.problems[0]


def test_a_zip_writes_nowhere(tmp_path):
    members = dict.fromkeys(("../../out.ipynb", "/out.ipynb", "C:\\out.ipynb"), json.dumps(notebook(CELL)))
    (tmp_path / "class").mkdir()
    pack(tmp_path / "class" / "bob.zip", members)
    link = zipfile.ZipInfo("link.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "class" / "bob.zip", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    bob = one_of(tmp_path / "class")
    assert bob.code == {DEVICES: RIGHT} and "bob.zip/link.ipynb cannot be read" in " ".join(bob.problems)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bob.zip", "class"]


def _encrypted(file):
    pack(file, {"12.ipynb": json.dumps(notebook(CELL))})
    data = bytearray(file.read_bytes())
    data[6] |= 1  # the flag of the member, and that of the list
    data[data.index(b"PK\1\2") + 8] |= 1
    file.write_bytes(data)


def _damaged(file):
    pack(file, {"12.ipynb": json.dumps(notebook(CELL))})
    data = bytearray(file.read_bytes())
    data[60:90] = bytes(30)
    file.write_bytes(data)


BAD_ZIPS = {
    "encrypted": (_encrypted, "it is encrypted"),
    "damaged": (_damaged, "12.ipynb cannot be read"),
    "no zip": (lambda file: file.write_bytes(b"Rar!"), "bob.zip cannot be read (BadZipFile"),
    "empty": (lambda file: file.write_bytes(b""), "bob.zip cannot be read"),
    "unlimited": (lambda file: pack(file, {"1.ipynb": "1"}, method=zipfile.ZIP_BZIP2), "in an unusual way"),
    "a bomb": (lambda file: pack(file, {"1.ipynb": b" " * (21 * 2**20)}), "it has more than 20 MiB"),
    "many bombs": (
        lambda file: pack(file, {f"{number}.ipynb": b" " * (19 * 2**20) for number in range(11)}),
        "bob.zip holds more than 200 MiB",
    ),
    "nothing inside": (lambda file: pack(file, {}), "there is no notebook"),
}


@pytest.mark.parametrize(("make", "told"), BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_a_zip_that_cannot_be_read_is_told_and_ends_nothing(tmp_path, make, told):
    make(tmp_path / "bob.zip")
    write(tmp_path / "ada" / "12.ipynb", CELL)
    tracemalloc.start()
    ada, bob = submissions(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ada.code == {DEVICES: RIGHT} and not bob.code
    assert told in " ".join(bob.problems), bob.problems
    assert peak < 150 * 2**20


def test_a_zip_that_is_too_large_is_not_opened(tmp_path, monkeypatch):
    pack(tmp_path / "bob.zip", {"12.ipynb": json.dumps(notebook(CELL))})
    monkeypatch.setattr(handed_files, "MOST_OF_ZIP", 100)
    assert "bob.zip cannot be read (ValueError: it has more than" in " ".join(one_of(tmp_path).problems)


def test_what_a_system_made_is_no_student_and_the_rest_is_told(tmp_path):
    write(tmp_path / "ada" / "12.ipynb", CELL)
    (tmp_path / "ada" / "report.pdf").write_text("")
    (tmp_path / "ada" / "link.ipynb").symlink_to("/etc/passwd")
    for system in ("__MACOSX", ".git", "__pycache__", "ada/__MACOSX"):
        write(tmp_path / system / "._12.ipynb", f"%%answer {DEVICES}\n{WRONG}")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "~$list.xlsx", "ada/.DS_Store"):
        (tmp_path / name).write_text("")
    (tmp_path / "list.csv").write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "ada")
    ada = one_of(tmp_path)
    assert (ada.student, ada.code) == ("ada", {DEVICES: RIGHT})
    assert ada.problems == ["not read: link.ipynb (a link), report.pdf"]
    assert left_out(tmp_path) == ["linked", "list.csv"]


@pytest.mark.usefixtures("confined")
def test_grades_say_which_notebook_counted_and_what_was_left_out(tmp_path, capsys):
    class_ = tmp_path / "class"
    write(class_ / "ada" / "12.ipynb", f"%%answer {DEVICES}\n{WRONG}", at=1e9)
    write(class_ / "ada" / "12 (1).ipynb", f"\n{CELL}".replace("needed\n", "needed  # done\n", 1))
    pack(class_ / "a;=1+1;\u202eb.zip", {"12.ipynb": json.dumps(notebook(CELL))})
    (class_ / "who;\x1b[2J.txt").write_text("")
    assert grade_command.main([str(class_), "--out", str(tmp_path / "grades"), "--seconds", "10"]) == 0
    said, grades = capsys.readouterr().out, tmp_path / "grades"
    rows = [row for row in csv.DictReader((grades / "grades.csv").open()) if row["exercise"] == DEVICES]
    assert {row["student"]: row["points"] for row in rows} == {"ada": "1", "a;'=1+1;\\u202eb": "1"}
    told = "not read, for it is no student's: who;\\x1b[2J.txt"
    assert told in said and "12 (1).ipynb" in said
    assert "who;\\x1b[2J.txt" in (grades / "index.html").read_text()
    (page,) = grades.glob("ada-*.html")
    assert "12 (1).ipynb (saved" in page.read_text() and "not counted: 12.ipynb" in page.read_text()


def test_problems_without_end_are_told_in_a_few_lines(tmp_path):
    for number in range(60):
        write(tmp_path / "ada" / f"{number}.ipynb", *(f"%%answer no.such{number}x{which}" for which in range(20)))
    assert len(one_of(tmp_path).problems) == 51
