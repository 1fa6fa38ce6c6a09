"""What students handed in: the code of their `%%answer` cells, read from notebooks and files. Nothing of it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.course import answers

MAGIC = "%%answer"
MOST_BYTES = 50 * 2**20  # of a file: a notebook with all its pictures has a few MiB
DAMAGE = (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError, nbformat.ValidationError)


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
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            found.append(_read(entry.name, _files(entry)))
        elif entry.suffix == ".ipynb":
            found.append(_read(entry.stem, [entry]))
    if not found:
        raise ValueError(f"{folder} holds no submission: a folder per student, or a notebook that a student's name has")
    return found


def answers_in(notebook: NotebookNode) -> dict[str, str]:
    """Return the code of the `%%answer` cells by exercise: the last one of each, as in a run from top to bottom."""
    found = {}
    for cell in notebook.cells:
        first, _, body = cell.source.partition("\n")
        words = first.split()
        if cell.cell_type == "code" and words[:1] == [MAGIC] and len(words) == 2:
            found[words[1]] = body
    return found


def _files(folder: Path) -> list[Path]:
    """Return the notebooks and files of answers of a student, files first; links lead nowhere."""
    found = []
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += [Path(place, name) for name in sorted(names) if name.endswith((".ipynb", ".py"))]
    return sorted((file for file in found if not file.is_symlink()), key=lambda file: (file.suffix != ".py", str(file)))


def _read(student: str, files: list[Path]) -> Submission:
    """Read a student's files; a notebook's cell counts more than a file of the same exercise."""
    submission, known = Submission(student), {answers.file_of(name).name: name for name in answers.exercises()}
    for file in files:
        try:
            if file.stat().st_size > MOST_BYTES:
                raise ValueError("too large")
            if file.suffix == ".ipynb":
                code = answers_in(nbformat.reads(file.read_text(encoding="utf-8"), as_version=4))
            else:
                code = {known[file.name]: file.read_text(encoding="utf-8")} if file.name in known else {}
        except DAMAGE as error:
            submission.problems.append(f"{file.name} cannot be read ({type(error).__name__}: {str(error)[:80]})")
            continue
        submission.problems += _unknown(code, [*known.values()])
        submission.code |= {name: text for name, text in code.items() if name in known.values()}
    if not submission.code and not submission.problems:
        submission.problems.append("there is no notebook and no file of an answer")
    return submission


def _unknown(code: dict[str, str], known: list[str]) -> Iterator[str]:
    for name in code:
        if name not in known:
            yield f"`{MAGIC} {name[:60]}` names no exercise"
