"""nbgrader's marks on a notebook's cells: which one is an answer, which one checks it, and for how many points."""

from __future__ import annotations

import ast
from typing import Any

from nbformat import NotebookNode

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.submissions import MAGIC

SCHEMA = 3  # of nbgrader's marks
CHECK = "check_"


def mark(notebook: NotebookNode) -> int:
    """Mark the cells of all exercises of a notebook, and no other; return how many exercises have both cells."""
    names = _names(notebook)
    complete = 0
    for cell in notebook.cells:
        cell.metadata.pop("nbgrader", None)
    for name in names:
        solution = next(cell for cell in notebook.cells if _is_answer(cell, name))
        check = next((cell for cell in notebook.cells if _is_check(cell, name, notebook)), None)
        solution.metadata["nbgrader"] = _marks(answers.file_of(name).stem, solution=True, grade=False, locked=False)
        if check is not None:
            marks = _marks(f"{CHECK}{answers.file_of(name).stem}", solution=False, grade=True, locked=True)
            check.metadata["nbgrader"] = marks | {"points": exercise_of(name).points}
            complete += 1
    return complete


def checked_by(cell: NotebookNode) -> str | None:
    """Return the exercise that a cell checks, by its mark; None for any other cell."""
    marks = cell.metadata.get("nbgrader", {})
    stem = str(marks.get("grade_id", "")).removeprefix(CHECK)
    names = {answers.file_of(name).stem: name for name in answers.exercises()}
    return names.get(stem) if marks.get("grade") and stem != marks["grade_id"] else None


def _marks(grade_id: str, **kind: bool) -> dict[str, Any]:
    return kind | {"task": False, "grade_id": grade_id, "schema_version": SCHEMA, "cell_type": "code"}


def _names(notebook: NotebookNode) -> list[str]:
    exercises = answers.exercises()
    first_lines = [cell.source.partition("\n")[0].split() for cell in notebook.cells if cell.cell_type == "code"]
    return [words[1] for words in first_lines if words[:1] == [MAGIC] and words[1:2] and words[1] in exercises]


def _is_answer(cell: NotebookNode, name: str) -> bool:
    return cell.cell_type == "code" and cell.source.partition("\n")[0].split() == [MAGIC, name]


def _is_check(cell: NotebookNode, name: str, notebook: NotebookNode) -> bool:
    """Whether a cell's last expression is `lab.check("function", …)`, the lab by whatever name it was imported."""
    if cell.cell_type != "code" or cell.source.startswith("%"):
        return False
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:
        return False
    lab, _, function = name.partition(".")
    call = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "check"):
        return False
    asked = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
    return asked == function and ast.unparse(call.func.value) in {lab, *_imported_as(lab, notebook)}


def _imported_as(lab: str, notebook: NotebookNode) -> set[str]:
    """Return the names that a notebook imports a lab by."""
    short_names = set()
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.source.startswith("%") and "import" in cell.source:
            try:
                nodes = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.ImportFrom)]
            except SyntaxError:
                continue
            names = [alias for node in nodes if node.module == "lessons" for alias in node.names]
            short_names |= {alias.asname for alias in names if alias.name == lab and alias.asname}
    return short_names
