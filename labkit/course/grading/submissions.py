"""What students handed in: the code of their `%%answer` cells. Nothing of it runs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.course import answers

MAGIC = "%%answer"
OPEN_STEP = re.compile(r"^[ \t]*\.\.\.[ \t\r]*(#.*)?$", re.MULTILINE)  # of text: some code crashes Python's parser
MOST_BYTES = 50 * 2**20  # of a file: a notebook with all its pictures has a few MiB
MOST_FOLDERS = 8  # below each other, in a student's folder
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    AttributeError,
    TypeError,
    RecursionError,
    MemoryError,
    nbformat.ValidationError,
)


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


def answers_in(notebook: NotebookNode) -> dict[str, str]:
    """Return the code of the `%%answer` cells by exercise: the last one of each, as in a run from top to bottom.

    But a cell with a `...` left replaces no answer: it may be a skeleton that was copied anew.
    """
    code: dict[str, str] = {}
    for cell in notebook.cells:
        first, _, body = cell.source.partition("\n")
        words = first.split()
        if cell.cell_type == "code" and words[:1] == [MAGIC] and len(words) == 2:
            _take(code, words[1], body)
    return code


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
    return sorted(
        (file for file in files if not file.is_symlink()), key=lambda file: (file.suffix == ".ipynb", str(file))
    )


def _read(student: str, files: list[Path]) -> Submission:
    """Read a student's files; a notebook's answer counts more than a file of the same exercise."""
    submission, names = Submission(student), {answers.file_of(name).name: name for name in answers.exercises()}
    for file in files:
        code = {}
        try:
            if file.suffix == ".ipynb":
                code = answers_in(nbformat.reads(_text_of(file), as_version=4))
            else:
                code = {names[file.name]: _text_of(file)} if file.name in names else {}
        except DAMAGE as error:
            submission.problems.append(f"{file.name} cannot be read ({type(error).__name__}: {str(error)[:80]})")
            continue
        submission.problems += _unknown(code, [*names.values()])
        for name in code.keys() & {*names.values()}:
            _take(submission.code, name, code[name])
    if not submission.code and not submission.problems:
        submission.problems.append("there is no notebook and no file of an answer")
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
    for name in code:
        if name not in names:
            yield f"`{MAGIC} {name[:60]}` names no exercise"
