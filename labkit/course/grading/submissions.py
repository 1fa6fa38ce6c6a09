"""What students handed in: the code of their `%%answer` cells. Nothing of it runs.

Of several answers to one exercise, a notebook's counts more than a file's, and a newer file's more than an older one's.
A file in a zip has the time that the zip gives; of equal times, the copy with the higher number counts.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.course import answers
from labkit.course.grading.handed_files import (
    COPY,
    NOTEBOOK,
    ZIP,
    HandedFile,
    HandedFiles,
    collect,
    is_of_a_system,
    stem_of,
    unreadable,
)
from labkit.course.grading.shown_work import ShownCell, cells_of, shown_cells
from labkit.course.syntax import MAGIC, answer_cell, refused_answer

OPEN_STEP = re.compile(r"^[ \t]*\.\.\.[ \t\r]*(#.*)?$", re.MULTILINE)  # of text: some code crashes Python's parser
MOST_CHARACTERS = 2 * 2**20  # of an answer
MOST_FILES = 200  # that may hold answers, of a student: 17 notebooks, each in a few copies
MOST_TOLD = 10  # of a kind, that are told by name
MOST_PROBLEMS = 50  # of a student


@dataclass
class Submission:
    """One student's answers: `code` by exercise, such as "broadcast.pipelined", and `problems` in reading them.

    `saved` says when the file of each answer was saved; `number` is the id that a roster gives; `shown` has the cells
    that a person reads by notebook, the one that counts most last.
    """

    student: str
    code: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    saved: dict[str, float] = field(default_factory=dict)
    number: str = ""
    shown: dict[str, list[ShownCell]] = field(default_factory=dict)


def submissions(folder: Path) -> list[Submission]:
    """Return what lies in a folder: a folder or zip per student, with notebooks or files of answers, or a notebook.

    A folder and a zip of one name are one student's. Raises ValueError where there is nothing of this kind.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    students: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if (student := _student_of(entry)) is not None:
            students.setdefault(student, []).append(entry)
    if not students:
        what = "a folder or a zip per student, or a notebook that a student's name has"
        raise ValueError(f"{folder} holds no submission: {what}")
    return [_read(student, entries) for student, entries in students.items()]


def left_out(folder: Path) -> list[str]:
    """Return the names in a folder of submissions that are no student's, but for those that systems make."""
    return [entry.name for entry in sorted(folder.iterdir()) if _student_of(entry) is None and not _is_system(entry)]


def few(names: list[str]) -> str:
    """Return some names in one line: the first ones, and how many more there are."""
    more = f" and {len(names) - MOST_TOLD:,} more" if len(names) > MOST_TOLD else ""
    return ", ".join(name[:100] for name in names[:MOST_TOLD]) + more


def answers_in(notebook: dict[str, Any]) -> dict[str, str]:
    """Return the code of the `%%answer` cells by exercise: the last one of each, as in a run from top to bottom.

    But a cell with a `...` left replaces no answer: it may be a skeleton that was copied anew.
    """
    code: dict[str, str] = {}
    for kind, source in _cells(notebook):
        if kind == "code" and (cell := answer_cell(source)) and _replaces(cell[1], code.get(cell[0])):
            code[cell[0]] = cell[1]
    return code


def without_comments(code: str) -> list[str]:
    """Return the lines of code that say something, each up to its first `#`; nothing is parsed."""
    lines = (line.partition("#")[0].rstrip() for line in code.splitlines())
    return [line for line in lines if line]


def _is_system(entry: Path) -> bool:
    return is_of_a_system(entry.name)


def _student_of(entry: Path) -> str | None:
    """Return whose an entry of the class's folder is; None where it is no student's."""
    if _is_system(entry) or entry.is_symlink():
        return None
    if entry.is_dir():
        return entry.name
    return stem_of(entry.name) if ZIP.search(entry.name) or NOTEBOOK.search(entry.name) else None


def _cells(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each cell, of any format; nothing is converted, which damaged cells could make endless.

    A text may be one string or a list of lines.
    """
    for cell in cells_of(notebook):
        yield cell["cell_type"], "".join(cell.get("source") or cell.get("input") or "")


def _replaces(text: str, earlier: str | None) -> bool:
    return earlier is None or not OPEN_STEP.search(text) or bool(OPEN_STEP.search(earlier))


def _refused(notebook: dict[str, Any], names: set[str]) -> Iterator[str]:
    """Yield a sentence on each cell that is meant as an answer, and that no notebook runs as one."""
    for kind, source in _cells(notebook):
        cell = answer_cell(source)
        if cell and kind != "code":
            yield f"`{MAGIC} {cell[0][:60]}` stands in a cell that is not code ({kind[:20]}), so it is not graded"
        elif cell and cell[0] not in names:
            yield f"`{MAGIC} {cell[0][:60]}` names no exercise"
        elif kind == "code" and (line := refused_answer(source)):
            yield (
                f"`{line[:60]}` is not graded: a notebook does not run its cell as an answer, "
                f"for `{MAGIC} lab.function` must be its first line"
            )


def _read(student: str, entries: list[Path]) -> Submission:
    """Read what a student handed in, the file that counts most last."""
    names = {answers.file_of(name).stem: name for name in answers.exercises()}
    found = HandedFiles()
    for entry in entries:
        collect(entry, lambda name: bool(NOTEBOOK.search(name)) or _module(name) in names, found)
    files = sorted(found.files, key=_rank)
    submission, counted = Submission(student, problems=found.problems), {}
    if len(files) > MOST_FILES:
        submission.problems.append(f"of {len(files):,} files, the newest {MOST_FILES} are read")
    for file in files[-MOST_FILES:]:
        try:
            code = _answers_of(file, names, submission)
        except Exception as error:  # whatever one student's file does, the others are graded
            submission.problems.append(unreadable(file.name, error))
            continue
        for name, text in code.items():
            _take(submission, counted, name, text, file)
    submission.problems += _several(counted)
    if not submission.code and not submission.problems:
        none = "none of its files holds an answer"
        submission.problems.append(none if files else "there is no notebook and no file of an answer")
    if found.others:
        submission.problems.append(f"not read: {few(found.others)}")
    if (more := len(submission.problems) - MOST_PROBLEMS) > 0:
        submission.problems[MOST_PROBLEMS:] = [f"{more:,} more problems"]
    return submission


def _rank(file: HandedFile) -> tuple[bool, float, int, str]:
    """Return by what files are ordered: of two, the answers of the later one count."""
    return bool(NOTEBOOK.search(file.name)), file.saved, file.copy_number, file.name


def _module(name: str) -> str:
    """Return the name of a file of an answer without its ending, and without the mark of a copy."""
    return COPY.sub("", stem_of(name)) if name.lower().endswith(".py") else ""


def _answers_of(file: HandedFile, names: dict[str, str], submission: Submission) -> dict[str, str]:
    """Return the answers of one file by exercise; add what is wrong with them, and what a person reads."""
    data, problems = file.read(), submission.problems
    if NOTEBOOK.search(file.name):
        notebook = json.loads(data)
        code, submission.shown[file.name] = answers_in(notebook), shown_cells(notebook)
        refused = [*dict.fromkeys(_refused(notebook, {*names.values()}))]
        problems += refused[:MOST_TOLD]
        if len(refused) > MOST_TOLD:
            problems.append(f"{file.name}: {len(refused) - MOST_TOLD:,} more such cells")
    else:
        code = {names[_module(file.name)]: data.decode("utf-8-sig").replace("\r\n", "\n")}
    known = {name: text for name, text in code.items() if name in names.values()}
    large = [name for name, text in known.items() if len(text) > MOST_CHARACTERS]
    problems += [f"{file.name}: `{name}` has more than {MOST_CHARACTERS:,} characters" for name in large]
    return {name: text for name, text in known.items() if name not in large}


def _take(submission: Submission, counted: dict[str, list[str]], name: str, text: str, file: HandedFile) -> None:
    """Take a file's answer, unless it is a skeleton beside an answer; note the files whose answers differ."""
    earlier = submission.code.get(name)
    if not _replaces(text, earlier):
        return
    submission.code[name], submission.saved[name] = text, file.saved
    if not OPEN_STEP.search(text):
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.saved))
        labels = counted.setdefault(name, [])
        labels[-1:] = [*(labels[-1:] if text != earlier else []), f"{file.name} (saved {saved})"]


def _several(counted: dict[str, list[str]]) -> Iterator[str]:
    """Yield a sentence for each group of exercises that the same files answer in different ways."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, labels in counted.items():
        if len(labels) > 1:
            groups.setdefault(tuple(labels), []).append(name)
    for (*others, last), exercises in groups.items():
        answered = f"{len(others) + 1} files answer {', '.join(exercises)} differently"
        rule = "the newest, and a notebook before a .py file"
        yield f"{answered}: {last} counts ({rule}); not counted: {few(others)}"
