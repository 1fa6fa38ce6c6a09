"""Grades as files: one CSV of all, a page per student, and one that leads to them. What a student wrote is text."""

from __future__ import annotations

import csv
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path

from labkit.course.grading.earlier import put_aside
from labkit.course.grading.grade import Graded
from labkit.course.grading.shown_work import MOST_CELLS, ShownCell
from labkit.course.grading.submissions import Submission
from labkit.course.verdict import SIGNS, UNANSWERED, Verdict
from labkit.engine.files import make_private, replace_file
from labkit.report.page import page_of
from labkit.repository import lesson_names

COLUMNS = ("student", "exercise", "grade", "points", "of", "outcome", "why", "note")
UNWRITABLE = "backslashreplace"  # half a surrogate pair, or a name that is no UTF-8
LAYOUT = "\n\t"  # is kept where code is shown
# Narrow columns with turned heads; the heads and the students' names stay in sight.
TABLE_STYLE = """
body { max-width: none; padding: 32px 16px; font-size: 13px; line-height: 1.3; }
th, td { padding: 4px; } td { vertical-align: middle; } [rowspan]:last-child { min-width: 140px; }
td:first-child, td:last-child { overflow-wrap: anywhere; } [rowspan]:first-child { min-width: 110px; }
.points { text-align: center; width: 1px; padding: 4px 1px; } .first { border-left: 1px solid var(--line); }
small, tfoot .points { font-size: 11px; line-height: 1; } small { display: block; color: var(--held); }
thead { position: sticky; top: 0; z-index: 2; background: var(--back); } thead th { vertical-align: bottom; }
tr > :first-child:not(.first) { position: sticky; left: 0; z-index: 1; background: var(--back); }
th.turned { padding: 4px 3px; font-size: 12px; line-height: 1.3; }
th.turned button { writing-mode: sideways-lr; white-space: nowrap; margin: 0 auto; display: block; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--link); }
th button:hover, [aria-sort] button { color: var(--text); } [aria-sort] button { font-weight: 650; }
[aria-sort=ascending] button::after { content: " ↑"; } [aria-sort=descending] button::after { content: " ↓"; }
.turned[aria-sort=ascending] button::after { content: " →"; }
.turned[aria-sort=descending] button::after { content: " ←"; }
summary { cursor: pointer; }
"""
# A click on a head sorts the students by this column; a second click turns the order round.
TABLE_SCRIPT = """<script>
const body = document.querySelector("tbody"), heads = document.querySelectorAll("thead button");
for (const head of heads) head.onclick = () => {
  const column = head.dataset.column, own = head.parentElement;
  const order = own.getAttribute("aria-sort") == "ascending" ? "descending" : "ascending";
  const text = row => row.cells[column].textContent, number = row => parseFloat(text(row).replace("–", "-1")) || 0;
  const byText = (one, other) => text(one).localeCompare(text(other), undefined, { numeric: true });
  const byNumber = (one, other) => number(one) - number(other);
  const rows = [...body.rows].sort(own.classList.contains("points") ? byNumber : byText);
  for (const other of heads) other.parentElement.removeAttribute("aria-sort");
  own.setAttribute("aria-sort", order);
  body.append(...(order == "ascending" ? rows : rows.reverse()));
};
</script>"""
EDGES = """<p>Blue edge: a cell that the student wrote or changed; grey edge: a cell of the workbook. Below each is what
it showed when the notebook was saved.</p>"""
MOST_SHOWN = 40  # characters of a student's problems that the index shows unfolded
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
        self._students: list[_Student] = []
        make_private(folder)
        self._earlier = put_aside(folder)
        self._write_rows("grades.csv", "w", [COLUMNS])
        self._write_rows("students.csv", "w", [("student", "id", *exercises, "total", "problems")])

    def add(self, submission: Submission, graded: Sequence[Graded]) -> None:
        """Add a student's grades to each of the files. Raises OSError where they cannot be written."""
        name = re.sub("[^A-Za-z0-9_-]", "_", submission.student)[:40]
        file = self._folder / f"{name}-{len(self._students) + 1:03d}.html"
        notes = {each.exercise: self._notes(submission, each) for each in graded}
        _write_page(file, _student_page(submission, graded, notes))
        self._students.append(_Student(file.name, submission, {each.exercise: each for each in graded}, notes))
        body = f"<h1>Grades</h1>{_matrix(self._students)}{self._remark}{TABLE_SCRIPT}"
        _write_page(self.index, body, TABLE_STYLE)
        points = [each.points for each in graded]
        row = [submission.student, submission.number, *points, sum(points), "; ".join(submission.problems)]
        self._write_rows("students.csv", "a", [_plain(row)])
        self._write_rows(
            "grades.csv", "a", ([*_row(each), "; ".join(notes[each.exercise].values())] for each in graded)
        )

    def _notes(self, submission: Submission, graded: Graded) -> dict[str, str]:
        """Return what changed since the earlier grading, and what is late: a sentence by its short form."""
        student, exercise, *_ = _row(graded)
        was, saved = self._earlier.get((student, exercise)), submission.saved.get(graded.exercise, 0.0)
        notes = {f"was {was}": f"was {was}, is {graded.points}"} if was not in (None, str(graded.points)) else {}
        if saved > self._due and graded.verdict.outcome != UNANSWERED:
            notes["late"] = f"late: saved {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(saved))}"
        return notes

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


@dataclass(frozen=True)
class _Student:
    """A row of the index: the student's page, what was handed in, grades and notes by exercise."""

    file: str
    submission: Submission
    grades: dict[str, Graded]
    notes: dict[str, dict[str, str]]


def _matrix(students: Sequence[_Student]) -> str:
    """Return the table of the class: a row per student, a column per exercise, and below them what the class reached.

    A lesson's exercises stand below its number; a head says the points of a right answer.
    """
    most = {name: graded.most for student in students for name, graded in student.grades.items()}
    firsts = {name.partition(".")[0]: name for name in reversed([*most])}.values()  # of their lessons
    groups, heads = [], []
    for column, name in enumerate(most, 2):
        lab, _, function = name.partition(".")
        first = " first" * (name in firsts)
        if first:
            count = sum(each.partition(".")[0] == lab for each in most)
            groups.append(f'<th class="first" colspan="{count}" title="{escape(lab)}">{_number(lab)}</th>')
        head = _sorting(f"{function} · {most[name]}", column)
        heads.append(f'<th class="points turned{first}" title="{escape(name)}">{head}</th>')
    tops = (("", "Student", 0), (' class="points"', "Points", 1), ("", "Problems", len(most) + 2))
    student, points, problems = (f'<th rowspan="2"{kind}>{_sorting(text, place)}</th>' for kind, text, place in tops)
    head = f"<tr>{student}{points}{''.join(groups)}{problems}</tr><tr>{''.join(heads)}</tr>"
    lines = [_line(student, {name: " first" * (name in firsts) for name in most}) for student in students]
    means = [[one.grades[name].points for one in students if name in one.grades] for name in most]
    shown = "".join(f'<td class="points">{sum(points) / len(points):.2g}</td>' for points in means)
    overall = sum(graded.points for student in students for graded in student.grades.values()) / len(students)
    foot = f'<tr><th>Mean of {len(students)}</th><td class="points">{overall:.3g}</td>{shown}<td></td></tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody><tfoot>{foot}</tfoot></table>"


def _sorting(text: str, column: int) -> str:
    """Return the head of a column as the button that sorts by it."""
    return f'<button data-column="{column}">{escape(text)}</button>'


def _number(lab: str) -> str:
    names = lesson_names()
    return f"{names.index(lab):02d}" if lab in names else escape(lab)


def _line(student: _Student, kinds: dict[str, str]) -> str:
    """Return a student's row in the class's table; `kinds` are classes of its cells by exercise."""
    cells = "".join(_td(student.grades.get(name), student.notes.get(name, {}), kind) for name, kind in kinds.items())
    problems = escape(visible("; ".join(student.submission.problems)))
    if len(problems) > MOST_SHOWN:
        begin = escape(visible("; ".join(student.submission.problems))[: MOST_SHOWN - 10])
        problems = f"<details><summary>{begin} …</summary>{problems}</details>"
    return (
        f'<tr><td><a href="{escape(student.file)}">{escape(visible(student.submission.student))}</a></td>'
        f'<td class="points">{sum(graded.points for graded in student.grades.values())}</td>{cells}'
        f"<td>{problems}</td></tr>"
    )


def _td(graded: Graded | None, notes: dict[str, str], kind: str) -> str:
    """Return a cell of the class's table; its title says the exercise, the outcome and the notes."""
    if graded is None:
        return f'<td class="points{kind}"></td>'
    title = "; ".join([f"{graded.exercise}: {graded.verdict.outcome}", *notes.values()])
    points = "–" if graded.verdict.outcome == UNANSWERED else graded.points
    marks = "".join(f"<small>{escape(note)}</small>" for note in notes)
    return f'<td class="points{kind}" title="{escape(title)}">{points}{marks}</td>'


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


def _student_page(submission: Submission, rows: Sequence[Graded], notes: dict[str, dict[str, str]]) -> str:
    problems = "".join(f'<p class="why">{_sentence(problem)}</p>' for problem in submission.problems)
    exercises = "".join(
        _exercise(graded, submission.code.get(graded.exercise, ""), notes[graded.exercise].values()) for graded in rows
    )
    head = f'<h1>{escape(visible(submission.student))}</h1><p class="lead">{points_text(rows)} points.</p>'
    return head + problems + exercises + "".join(_to_read(submission.shown))


def _to_read(shown: dict[str, list[ShownCell]]) -> Iterator[str]:
    """Yield the cells that a person reads, by notebook; what several copies hold stands under the one that counts."""
    told: set[ShownCell] = set()
    for name, cells in reversed(shown.items()):
        new = [cell for cell in dict.fromkeys(cells) if cell not in told]
        told.update(new)
        if new:
            yield f"<h2>{escape(visible(name))}: predictions, bugs, the student's own cells</h2>{EDGES}"
        for cell in new:
            yield f"<br>{_box(cell.source, '--link' if cell.own else '--line')}{_box(cell.shown, '--tint')}"
        if len(cells) == MOST_CELLS:
            yield f"<p>These are the first {MOST_CELLS}: read the notebook for more.</p>"


def _boxed(head: str, text: str, edge: str = "--line") -> str:
    """Return a text as it was typed below a head; nothing where there is none."""
    return f"<h3>{head}</h3>{_box(text, edge)}" if text.strip() else ""


def _box(text: str, edge: str) -> str:
    return f'<pre class="why" style="border-color: var({edge})">{escape(visible(text, LAYOUT))}</pre>' * bool(
        text.strip()
    )


def _sentence(text: str) -> str:
    """Return a sentence as HTML; what stands between backticks is shown as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(visible(text)))


def _exercise(graded: Graded, code: str, notes: Iterable[str]) -> str:
    verdict = graded.verdict
    outcome = f"{SIGNS[verdict.outcome]} {verdict.outcome}"
    lines = "".join(f"<li>{_sentence(line)}</li>" for line in (*notes, *verdict.faults.values(), *verdict.merits))
    shown = _boxed("Its traceback", verdict.detail, "--bad") + _boxed("It printed", verdict.printed)
    shown += _boxed("The answer", code)
    points = f"{graded.points} of {graded.most} points ({escape(graded.grade)})"
    return f"<h2>{escape(graded.exercise)}: {escape(outcome)}, {points}</h2><ul>{lines}</ul>{shown}"
