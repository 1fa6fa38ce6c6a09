"""Grades of a class: a row per student, a roster, earlier grades that are kept, and answers that are late."""

import csv
import hashlib
import os
import re

import pytest

from labkit.course.grading import grade as grade_module
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.tools import grade as grade_command

DEVICES = "accounting.devices_needed"


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """Return a function that grades answers "right" and "wrong" without trying them, and reads the two CSVs."""
    monkeypatch.setattr(grade_command.confine, "require_confinement", lambda: None)
    monkeypatch.setattr(grade_command.confine, "side_by_side", lambda: True)

    def judge(exercise, name, code, student, **more):
        return Verdict(exercise.name, RIGHT if code == "right" else WRONG, {})

    monkeypatch.setattr(grade_module, "judge", judge)

    def run(*options: str, secret: str = "s", **students: str):
        for student, code in students.items():
            (tmp_path / "in" / student).mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / student / "accounting_devices_needed.py").write_text(code)
        arguments = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--secret", secret, *options]
        assert grade_command.main(arguments) == 0
        names = ("grades.csv", "students.csv")
        return [[*csv.DictReader((tmp_path / "out" / name).open(encoding="utf-8"))] for name in names]

    run.folder = tmp_path
    return run


def test_a_row_per_student_and_who_handed_in_nothing(graded):
    roster = graded.folder / "roster.csv"
    roster.write_text("name,id\nada,17\n=carl,18\n,bob\n")
    _, rows = graded("--roster", str(roster), ada="right", bob="wrong", eve="right")
    assert [*rows[0]] == ["student", "id", DEVICES, "accounting.compute_bound_batch", "total", "problems"]
    assert [(row["student"], row["id"], row[DEVICES], row["total"], row["problems"]) for row in rows] == [
        ("ada", "17", "1", "1", ""),
        ("'=carl", "18", "0", "0", "nothing handed in"),
        ("bob", "bob", "0", "0", ""),
        ("eve", "", "1", "1", "not on the roster"),
    ]


def test_a_roster_without_its_columns_is_a_sentence(graded, capsys):
    (graded.folder / "in" / "ada").mkdir(parents=True)
    roster = graded.folder / "roster.csv"
    roster.write_text("who\nada\n")
    assert grade_command.main([str(graded.folder / "in"), "--roster", str(roster)]) == 2
    assert "neither a column `name` nor a column `id`" in capsys.readouterr().err


def test_earlier_grades_are_kept_and_changes_are_told(graded):
    graded(ada="right", bob="wrong")
    for _ in range(2):
        rows, _ = graded(ada="wrong")
    assert [row["note"] for row in graded(ada="right")[0] if row["exercise"] == DEVICES] == ["was 0, is 1", ""]
    assert not any(row["note"] for row in rows), "graded twice with the same result"
    index, page = (next((graded.folder / "out").glob(name)).read_text() for name in ("index.html", "ada-*.html"))
    assert "1<small>was 0</small></td>" in index and "<li>was 0, is 1</li>" in page
    kept = [*(graded.folder / "out" / "earlier").glob("*/grades.csv")]
    assert len(kept) == 3 and all((file.parent / "index.html").exists() for file in kept)


def test_a_run_says_its_code_and_its_secrets_fingerprint_and_warns_without_one(graded, capsys):
    graded(ada="right", secret="a long secret")
    index = (graded.folder / "out" / "index.html").read_text(encoding="utf-8")
    told, fingerprint = capsys.readouterr(), hashlib.sha256(b"a long secret").hexdigest()[:8]
    assert all(f"fingerprint {fingerprint}." in text and "a long secret" not in text for text in (index, told.out))
    assert re.search(r"Graded \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, (commit|code) [0-9a-f]{12}", told.out) and not told.err
    graded(ada="right", secret="")
    told = capsys.readouterr()
    assert "fingerprint none" in told.out and grade_command.NO_SECRET in told.err


def test_late_answers_are_marked_and_keep_their_points(graded):
    graded(ada="right", bob="right")
    os.utime(graded.folder / "in" / "bob" / "accounting_devices_needed.py", (2e9, 2e9))
    rows, _ = graded("--due", "2033-01-01T00:00")
    of_devices = {row["student"]: row for row in rows if row["exercise"] == DEVICES}
    assert of_devices["ada"]["note"] == "" and of_devices["bob"]["points"] == "1"
    assert of_devices["bob"]["note"].startswith("late: saved 2033-05-1")
    pages = {name: next((graded.folder / "out").glob(f"{name}*.html")).read_text() for name in ("index", "ada", "bob")}
    assert pages["index"].count("1<small>late</small></td>") == 1
    assert "<li>late: saved 2033-05-1" in pages["bob"] and "late:" not in pages["ada"]
