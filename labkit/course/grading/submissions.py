"""What students handed in: the code of their `%%answer` cells. Nothing of it runs."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.course import answers

MAGIC = "%%answer"
OPEN_STEP = re.compile(r"^[ \t]*\.\.\.[ \t\r]*(#.*)?$", re.MULTILINE)  # of text: some code crashes Python's parser
MOST_BYTES = 20 * 2**20  # of a file: a notebook with its pictures has a few MiB; JSON takes up to 24 times as much
MOST_FILES = 200  # that may hold answers, of a student: 15 notebooks, each in a few copies
MOST_UNKNOWN = 10  # of a file, that are told by name
MOST_FOLDERS = 8  # below each other, in a student's folder


@dataclass
class Submission:
    """One student's answers: `code` by exercise, such as "broadcast.pipelined", and `problems` in reading them."""

    student: str
    code: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def submissions(folder: Path) -> list[Submission]:
    """Return what lies in a folder: a folder per student, with notebooks or files of answers, or a notebook each.

    Raises ValueError where there is nothing of this kind.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    students = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            students.append(_read(entry.name, _files(entry)))
        elif entry.suffix == ".ipynb":
            students.append(_read(entry.stem, [entry]))
    if not students:
        raise ValueError(f"{folder} holds no submission: a folder per student, or a notebook that a student's name has")
    return students


def answers_in(notebook: dict[str, Any]) -> dict[str, str]:
    """Return the code of the `%%answer` cells by exercise: the last one of each, as in a run from top to bottom.

    But a cell with a `...` left replaces no answer: it may be a skeleton that was copied anew.
    """
    code: dict[str, str] = {}
    for source in _code_cells(notebook):
        first, _, body = source.partition("\n")
        words = first.split()
        if words[:1] == [MAGIC] and len(words) == 2:
            _take(code, words[1], body)
    return code


def _code_cells(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each code cell, of format 4 or 3; nothing is converted, which damaged cells could make endless.

    A text may be one string or a list of lines.
    """
    sheets = [notebook, *notebook.get("worksheets", [])]
    for cell in (cell for sheet in sheets for cell in sheet.get("cells", [])):
        if cell["cell_type"] == "code":
            yield "".join(cell["source"] if "source" in cell else cell["input"])


def _take(code: dict[str, str], name: str, text: str) -> None:
    if not OPEN_STEP.search(text) or OPEN_STEP.search(code.get(name, "...")):
        code[name] = text


def _files(folder: Path) -> list[Path]:
    """Return the files of answers and notebooks of a student, notebooks last; links lead nowhere."""
    files = []
    for place, folders, names in os.walk(folder, followlinks=False):
        too_deep = len(Path(place).relative_to(folder).parts) == MOST_FOLDERS
        folders[:] = [] if too_deep else sorted(name for name in folders if not name.startswith("."))
        files += [Path(place, name) for name in names if name.endswith((".ipynb", ".py"))]
    names_of_answers = {answers.file_of(name).name for name in answers.exercises()}
    files = [file for file in files if file.suffix == ".ipynb" or file.name in names_of_answers]
    return sorted(
        (file for file in files if not file.is_symlink()), key=lambda file: (file.suffix == ".ipynb", str(file))
    )


def _read(student: str, files: list[Path]) -> Submission:
    """Read a student's files; a notebook's answer counts more than a file of the same exercise."""
    submission, names = Submission(student), {answers.file_of(name).name: name for name in answers.exercises()}
    if len(files) > MOST_FILES:
        submission.problems.append(f"of {len(files):,} files, {MOST_FILES} are read")
    for file in files[-MOST_FILES:]:
        try:
            text = _text_of(file)
            code = answers_in(json.loads(text)) if file.suffix == ".ipynb" else {names[file.name]: text}
        except Exception as error:  # whatever one student's file does, the others are graded
            submission.problems.append(f"{file.name} cannot be read ({type(error).__name__}: {str(error)[:80]})")
            continue
        submission.problems += _unknown(code, [*names.values()])
        for name in code.keys() & {*names.values()}:
            _take(submission.code, name, code[name])
    if not submission.code and not submission.problems:
        none = "none of its files holds an answer"
        submission.problems.append(none if files else "there is no notebook and no file of an answer")
    return submission


def _text_of(file: Path) -> str:
    """Return the text of a regular file. Raises ValueError for anything else, without waiting for who writes to it."""
    if not stat.S_ISREG(file.lstat().st_mode):
        raise ValueError("it is no regular file")
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # it may be another one by now
    with open(descriptor, encoding="utf-8-sig") as opened:
        if os.fstat(descriptor).st_size > MOST_BYTES:
            raise ValueError("too large")
        return opened.read(MOST_BYTES)


def _unknown(code: dict[str, str], names: list[str]) -> Iterator[str]:
    unknown = [name for name in code if name not in names]
    for name in unknown[:MOST_UNKNOWN]:
        yield f"`{MAGIC} {name[:60]}` names no exercise"
    if len(unknown) > MOST_UNKNOWN:
        yield f"{len(unknown) - MOST_UNKNOWN:,} more cells name no exercise"
