"""What a person reads in a student's notebook: predictions, named bugs, and cells of their own with what these showed.

Nothing of it runs, and all of it is text.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labkit.course.syntax import answer_cell
from labkit.repository import chosen_notebooks

MOST_CELLS = 60  # of a notebook
MOST_TEXT = 2_000  # characters of a cell, and of what it showed
_READ = re.compile(r"\.(compare|diagnose)\(")
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\s]{1,300}\)")  # no text makes it slow
_TEXTS = ("text/markdown", "text/plain")  # the first one that an output has is shown


@dataclass(frozen=True)
class ShownCell:
    """A cell that a person reads: its source, and what it showed as text; `own` where the workbook has no such cell."""

    source: str
    shown: str
    own: bool


def shown_cells(notebook: dict[str, Any]) -> list[ShownCell]:
    """Return the cells that name a prediction's error or bugs, and those that the student wrote or changed.

    Answers are not among them. Cells and outputs of unknown forms are left out: a notebook may hold anything.
    """
    found = []
    for cell in cells_of(notebook):
        source = text_of(cell.get("source") or cell.get("input"))
        own = _plain(source) not in _workbooks_cells()
        reads = cell.get("cell_type") == "code" and _READ.search(source)
        if source.strip() and (own or reads) and not answer_cell(source):
            found.append(ShownCell(_cut(source), _cut("\n".join(_shown(cell))), own))
    return found[:MOST_CELLS]


def cells_of(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the cells of a notebook of any format."""
    for sheet in [notebook, *(notebook.get("worksheets") or [])]:
        yield from sheet.get("cells") or []


def text_of(text: Any) -> str:
    """Return a text that may be one string or a list of lines; "" for anything else."""
    lines = text if isinstance(text, list) else [text]
    return "".join(lines) if all(isinstance(line, str) for line in lines) else ""


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} …"


def _shown(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a cell's outputs, and a remark for each picture."""
    outputs = cell.get("outputs")
    for output in filter(lambda one: isinstance(one, dict), outputs if isinstance(outputs, list) else []):
        data = output.get("data") if isinstance(output.get("data"), dict) else {}
        if any(str(kind).startswith("image/") for kind in data):
            yield "(a picture: see the notebook)"
        elif output.get("output_type") == "error":
            yield f"{output.get('ename')}: {output.get('evalue')}"
        else:
            texts = [text_of(data.get(kind)) for kind in _TEXTS] + [text_of(output.get("text"))]
            yield next(filter(None, texts), "").strip()


def _plain(source: str) -> str:
    """Return a text without what a handout, or an editor, changes: links, spaces at its ends and at those of lines."""
    return "\n".join(line.rstrip() for line in _LINK.sub(r"\1", source).strip().splitlines())


@functools.cache
def _workbooks_cells() -> frozenset[str]:
    pages = (json.loads(page.read_bytes()) for page in chosen_notebooks())
    return frozenset(_plain(text_of(cell["source"])) for page in pages for cell in page["cells"])
