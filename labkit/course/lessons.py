"""The lessons as their notebooks describe themselves: what each one builds on, asks for and lets the student write.

Every notebook has a cell tagged `front-matter` before its first section, a list with one line per label below. The map
of the course, the tests and the teacher's table read it, so a new notebook adds itself to all of them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.course.syntax import answer_cell
from labkit.repository import NOTEBOOKS

FRONT_MATTER = "front-matter"  # the tag of the cell that says what to know first
KNOW, TIME, ABLE, REPORTS, NEXT = "Know first", "Time", "Afterwards you can", "Reports", "Next"
LABELS = (KNOW, TIME, ABLE, REPORTS, NEXT)  # in this order; REPORTS only where the lesson reads reports
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
LESSON_LINK = re.compile(r"(\d\d_\w+)\.ipynb")


@dataclass(frozen=True)
class Lesson:
    """One notebook: its file's name without ending, its title, and what the map and the teacher's table need of it."""

    name: str
    title: str
    front_matter: dict[str, str]
    questions: tuple[tuple[str, str], ...]
    exercises: tuple[str, ...]

    @property
    def number(self) -> str:
        """The two digits that the notebook's name begins with."""
        return self.name[:2]

    @property
    def builds_on(self) -> tuple[str, ...]:
        """The lessons that it asks to know first, by name."""
        return tuple(dict.fromkeys(LESSON_LINK.findall(self.front_matter.get(KNOW, ""))))


def lessons() -> list[Lesson]:
    """Return the lessons, in order."""
    return [_lesson(path) for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))]


def lines_of(front_matter: str) -> dict[str, str]:
    """Return the text of each line `- **Label:** text` by its label, in order; a text may go on in the next lines.

    The list may stand folded in `<details>`.
    """
    items = re.findall(r"^- \*\*(.+?):\*\*\s+(.*(?:\n(?!- ).*)*)", front_matter, flags=re.M)
    return {label: " ".join(text.removesuffix("</details>").split()) for label, text in items}


def _lesson(path: Path) -> Lesson:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    tagged = (
        source for source, cell in zip(sources, cells, strict=True) if FRONT_MATTER in cell["metadata"].get("tags", ())
    )
    code = [source for source, cell in zip(sources, cells, strict=True) if cell["cell_type"] == "code"]
    title = re.sub(r"^#\s*(\d\d ·\s*)?", "", sources[0].partition("\n")[0]) if sources else path.stem
    exercises = tuple(cell[0] for cell in map(answer_cell, code) if cell and cell[0])
    return Lesson(path.stem, title, lines_of(next(tagged, "")), tuple(_questions(code)), exercises)


def _questions(code: list[str]) -> Iterator[tuple[str, str]]:
    """Yield question and unit of each `predict("…", unit="…")`."""
    for source in code:
        with suppress(SyntaxError):  # a student's cell
            for node in ast.walk(ast.parse("" if source.startswith("%%") else source)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "predict":
                    unit = next((word.value for word in node.keywords if word.arg == "unit"), None)
                    literals = [part.value for part in (*node.args[:1], unit) if isinstance(part, ast.Constant)]
                    if len(literals) == 2:
                        yield str(literals[0]), str(literals[1])
