"""Grades as files: one CSV of all, a page per student, and one that leads to them. What a student wrote is text."""

from __future__ import annotations

import csv
import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path

from labkit.course.grading.earlier import put_aside
from labkit.course.grading.grade import Graded
from labkit.course.grading.submissions import Submission
from labkit.course.verdict import SIGNS, UNANSWERED, Verdict
from labkit.engine.files import make_private, replace_file
from labkit.report.page import page_of
from labkit.repository import lesson_names

COLUMNS = ("student", "exercise", "grade", "points", "of", "outcome", "why", "note")
UNWRITABLE = "backslashreplace"  # half a surrogate pair, or a name that is no UTF-8
LAYOUT = "\n\t"  # is kept where code is shown
# Narrow columns with turned heads; the head and the students' names stay in sight.
TABLE_STYLE = """
body { max-width: none; } th, td { padding: 4px 6px; } .time { text-align: right; white-space: nowrap; }
tr:first-child th { position: sticky; top: 0; z-index: 1; background: var(--back); vertical-align: bottom; }
td:first-child, tr th:first-child { position: sticky; left: 0; background: var(--back); }
th.turned { writing-mode: sideways-lr; white-space: nowrap; }
"""
_FORMULA = re.compile(r"(^|;)(\s*)(?=[=+\-@＝＋－＠])")  # a spreadsheet computes cells that begin so; some split at ";"


class Pages:
    """The files of the grades in a folder: two CSVs, a page per student, and `index`, the page that leads to them.

    grades.csv has a row per student and exercise, students.csv one per student. What was added is there, whatever
    happens to the students after it; what was graded before is put aside. `remarks` stand below the table of the class.
    Answers saved after `due` are marked late.
    """

    def __init__(self, folder: Path, exercises: Sequence[str] = (), remarks: Sequence[str] = (), due: float = math.inf):
        self._remark = "".join(f"<p>{escape(visible(remark))}</p>" for remark in filter(None, remarks))
        self._due = due
        self._folder, self.index = folder, folder / "index.html"
        self._students: list[tuple[str, Submission, Sequence[Graded]]] = []  # file, what was handed in, grades
        make_private(folder)
        self._earlier = put_aside(folder)
        self._write_rows("grades.csv", "w", [COLUMNS])
        self._write_rows("students.csv", "w", [("student", "id", *exercises, "total", "problems")])

    def add(self, submission: Submission, graded: Sequence[Graded]) -> None:
        """Add a student's grades to each of the files. Raises OSError where they cannot be written."""
        name = re.sub("[^A-Za-z0-9_-]", "_", submission.student)[:40]
        file = self._folder / f"{name}-{len(self._students) + 1:03d}.html"
        _write_page(file, _student(submission, graded))
        self._students.append((file.name, submission, graded))
        body = f"<h1>Grades</h1>{_matrix(self._students)}{self._remark}"
        _write_page(self.index, body, TABLE_STYLE)
        points = [each.points for each in graded]
        row = [submission.student, submission.number, *points, sum(points), "; ".join(submission.problems)]
        self._write_rows("students.csv", "a", [_plain(row)])
        self._write_rows("grades.csv", "a", (self._row(submission, each) for each in graded))

    def _row(self, submission: Submission, graded: Graded) -> list:
        """Return a row of grades.csv; its note says what changed since the earlier grading, and what is late."""
        row = _row(graded)
        was, saved = self._earlier.get((row[0], row[1])), submission.saved.get(graded.exercise, 0.0)
        changed = f"was {was}, is {graded.points}" if was not in (None, str(graded.points)) else ""
        late = f"late: saved {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(saved))}" if saved > self._due else ""
        return [*row, "; ".join(filter(None, (changed, late)))]

    def _write_rows(self, name: str, mode: str, rows: Iterable[Sequence]) -> None:
        file = self._folder / name
        before = file.stat().st_size if mode == "a" else 0
        try:
            with open(file, mode, newline="", encoding="utf-8", errors=UNWRITABLE) as target:
                csv.writer(target, quoting=csv.QUOTE_ALL).writerows(rows)  # some split a text at its semicolons
        except OSError:  # a disk that is full takes a part of a row
            with suppress(OSError):
                os.truncate(file, before)
            raise


def _matrix(students: Sequence[tuple[str, Submission, Sequence[Graded]]]) -> str:
    """Return the table of the class: a row per student, a column per exercise, and below them what the class reached.

    A head says a lesson's number and the beginning of a name; titles say the rest.
    """
    grades = [{graded.exercise: graded for graded in rows} for _, _, rows in students]
    exercises = list(dict.fromkeys(name for by_name in grades for name in by_name))
    heads = "".join(f'<th class="turned" title="{escape(name)}">{escape(_numbered(name))}</th>' for name in exercises)
    lines = []
    for (file, submission, rows), by_name in zip(students, grades, strict=True):
        cells = "".join(_td(by_name.get(name)) for name in exercises)
        lines.append(
            f'<tr><td><a href="{escape(file)}">{escape(visible(submission.student))}</a></td>'
            f'<td class="time">{points_text(rows)}</td>{cells}'
            f"<td>{escape(visible('; '.join(submission.problems)))}</td></tr>"
        )
    means = [[by_name[name].points for by_name in grades if name in by_name] for name in exercises]
    shown = "".join(f'<td class="time">{sum(points) / len(points):.2g}</td>' for points in means)
    overall = sum(graded.points for _, _, rows in students for graded in rows) / len(students)
    head = f'<tr><th>Student</th><th class="time">Points</th>{heads}<th>Problems</th></tr>'
    foot = f'<tr><th>Mean of {len(students)}</th><td class="time">{overall:.3g}</td>{shown}<td></td></tr>'
    return f"<table>{head}{''.join(lines)}{foot}</table>"


def _numbered(exercise: str) -> str:
    """Return an exercise with the number of its lesson: "12 devices_needed"."""
    lab, _, function = exercise.partition(".")
    names = lesson_names()
    return f"{names.index(lab):02d} {function}" if lab in names else exercise


def _td(graded: Graded | None) -> str:
    """Return a cell of the class's table; its title says the exercise and the outcome."""
    if graded is None:
        return "<td></td>"
    return f'<td class="time" title="{escape(graded.exercise)}: {escape(graded.verdict.outcome)}">{_cell(graded)}</td>'


def _cell(graded: Graded) -> str:
    outcome = graded.verdict.outcome
    if outcome == UNANSWERED:
        return "–"
    return f"{graded.points}/{graded.most}" if graded.points else "0"


def _write_page(file: Path, body: str, style: str = "") -> None:
    replace_file(file, page_of(body, style), errors=UNWRITABLE)


def _row(graded: Graded) -> list:
    verdict = graded.verdict
    row = (
        graded.student,
        graded.exercise,
        graded.grade,
        graded.points,
        graded.most,
        verdict.outcome,
        reasons_text(verdict),
    )
    return _plain(row)


def _plain(row: Sequence) -> list:
    """Return the cells of a row, none of which a spreadsheet computes."""
    return [_FORMULA.sub(r"\1\2'", visible(cell)) if isinstance(cell, str) else cell for cell in row]


def visible(text: str, but: str = "") -> str:
    """Return a text in which characters that nobody sees are escapes: commands of a terminal, turned writing."""
    return "".join(
        character if character.isprintable() or character in but else ascii(character)[1:-1] for character in text
    )


def reasons_text(verdict: Verdict) -> str:
    """Return what is wrong, or what is right, in one line."""
    return " ".join("; ".join([*verdict.faults.values()] or verdict.merits).split())


def points_text(rows: Sequence[Graded]) -> str:
    """Return the points that were reached, of those that were possible."""
    return f"{sum(graded.points for graded in rows)} of {sum(graded.most for graded in rows)}"


def _student(submission: Submission, rows: Sequence[Graded]) -> str:
    problems = "".join(f'<p class="why">{_sentence(problem)}</p>' for problem in submission.problems)
    exercises = "".join(_exercise(graded, submission.code.get(graded.exercise, "")) for graded in rows)
    head = f'<h1>{escape(visible(submission.student))}</h1><p class="lead">{points_text(rows)} points.</p>'
    return head + problems + exercises


def _sentence(text: str) -> str:
    """Return a sentence as HTML; what stands between backticks is shown as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(visible(text)))


def _exercise(graded: Graded, code: str) -> str:
    verdict = graded.verdict
    outcome = f"{SIGNS[verdict.outcome]} {verdict.outcome}"
    lines = "".join(f"<li>{_sentence(line)}</li>" for line in (*verdict.faults.values(), *verdict.merits))
    texts = (
        ("Its traceback", verdict.detail, "--bad"),
        ("It printed", verdict.printed, "--line"),
        ("The answer", code, "--line"),
    )
    shown = "".join(
        f'<h3>{head}</h3><pre class="why" style="border-color: var({edge})">{escape(visible(text, LAYOUT))}</pre>'
        for head, text, edge in texts
        if text.strip()
    )
    points = f"{graded.points} of {graded.most} points ({escape(graded.grade)})"
    return f"<h2>{escape(graded.exercise)}: {escape(outcome)}, {points}</h2><ul>{lines}</ul>{shown}"
