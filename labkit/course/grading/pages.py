"""Grades as files: one CSV of all, a page per student, and one that leads to them. What a student wrote is text."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from labkit.batch.frame import page
from labkit.course.grading import confine
from labkit.course.grading.grade import Graded
from labkit.course.grading.submissions import Submission
from labkit.course.verdict import SIGNS, Verdict

COLUMNS = ("student", "exercise", "grade", "points", "of", "outcome", "why")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes cells that begin so


def write(folder: Path, graded: Sequence[Graded], submissions: Sequence[Submission], kind: str) -> Path:
    """Write grades.csv, a page per student and index.html; return the last one. `kind`: how answers were confined."""
    note = f'<p class="lead">{escape(confine.WORDS[kind])}.</p>'
    if kind == confine.LIMITS:
        note = f'<p class="lead" style="color: var(--bad)"><b>{escape(confine.WORDS[kind])}.</b></p>'
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "grades.csv", graded)
    by_student = {name: list(rows) for name, rows in groupby(graded, key=lambda one: one.student)}
    links = []
    for number, submission in enumerate(submissions, start=1):
        rows = by_student.get(submission.student, [])
        file = folder / f"{number:03d}-{re.sub('[^A-Za-z0-9_-]', '_', submission.student)[:40]}.html"
        file.write_text(page(_student(submission, rows, note)), encoding="utf-8")
        links.append(
            f'<tr><td><a href="{escape(file.name)}">{escape(submission.student)}</a></td>'
            f'<td class="time">{_total(rows)}</td><td>{escape("; ".join(submission.problems))}</td></tr>'
        )
    index = folder / "index.html"
    table = f'<table><tr><th>Student</th><th class="time">Points</th><th>Problems</th></tr>{"".join(links)}</table>'
    index.write_text(page(f"<h1>Grades</h1>{note}{table}"), encoding="utf-8")
    return index


def _write_csv(file: Path, graded: Sequence[Graded]) -> None:
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(COLUMNS)
        for one in graded:
            row = (one.student, one.exercise, one.grade, one.points, one.most, one.verdict.outcome, why(one.verdict))
            writer.writerow([f"'{cell}" if str(cell).startswith(_FORMULA) else cell for cell in row])


def why(verdict: Verdict) -> str:
    """Return what is wrong, or what is right, in one line."""
    return " ".join("; ".join([*verdict.faults.values()] or verdict.merits).split())


def _total(rows: Sequence[Graded]) -> str:
    return f"{sum(one.points for one in rows)} of {sum(one.most for one in rows)}"


def _student(submission: Submission, rows: Sequence[Graded], note: str) -> str:
    problems = "".join(f'<p class="why">{escape(problem)}</p>' for problem in submission.problems)
    exercises = "".join(_exercise(one, submission.code.get(one.exercise, "")) for one in rows)
    head = f'<h1>{escape(submission.student)}</h1><p class="lead">{_total(rows)} points.</p>{note}'
    return head + problems + exercises


def _exercise(one: Graded, code: str) -> str:
    verdict = one.verdict
    outcome = f"{SIGNS[verdict.outcome]} {verdict.outcome}"
    lines = "".join(f"<li>{escape(line)}</li>" for line in (*verdict.faults.values(), *verdict.merits))
    texts = (
        ("Its traceback", verdict.detail, "--bad"),
        ("It printed", verdict.printed, "--line"),
        ("The answer", code, "--line"),
    )
    shown = "".join(
        f'<h3>{head}</h3><pre class="why" style="border-color: var({edge})">{escape(text)}</pre>'
        for head, text, edge in texts
        if text.strip()
    )
    points = f"{one.points} of {one.most} points"
    return f"<h2>{escape(one.exercise)}: {escape(outcome)}, {points} ({escape(one.grade)})</h2><ul>{lines}</ul>{shown}"
