"""Two steps for nbgrader: skeletons are handed out as they are, and answers are judged in confined processes.

nbgrader would replace the whole cell of a solution by a stub, and `%%answer` with it. It would also run a student's
whole notebook, and whatever code is in it, in a kernel with the grader's rights, where that code could change the
checks. Instead, the answers are taken out of the notebook's text, and each check's cell gets the verdict as its output.
"""

from __future__ import annotations

import os
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.preprocessors import ClearSolutions, Execute, NbGraderPreprocessor
from traitlets import Bool, Float, Integer
from traitlets.config import Config

from labkit.course.exercises import exercise_of
from labkit.course.grading import confine
from labkit.course.grading.cells import checked_by
from labkit.course.grading.confined_judge import judge
from labkit.course.grading.submissions import answers_in
from labkit.course.verdict import RIGHT, UNANSWERED, Verdict


class KeepSkeletons(ClearSolutions):
    """Hands out a solution's cell that begins with `%%answer` as it is; others become a stub, as nbgrader wants it."""

    def preprocess_cell(self, cell: NotebookNode, resources: Any, cell_index: int) -> tuple[NotebookNode, Any]:
        if cell.source.startswith("%%answer") and self.begin_solution_delimeter not in cell.source:
            return cell, resources
        return super().preprocess_cell(cell, resources, cell_index)


class JudgeAnswers(NbGraderPreprocessor):
    """Puts the verdict on each answer below its check's cell, and an error that takes the points unless it is right."""

    seconds = Float(20.0, help="the time of one answer, from start to end").tag(config=True)
    memory_mib = Integer(4096, help="the memory of one answer").tag(config=True)
    unconfined = Bool(False, help="run answers with your own rights where nothing here confines them").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        code, student = answers_in(nb), resources["nbgrader"]["student"]
        try:
            kind = confine.confinement(self.unconfined)
        except confine.Unconfined as error:
            raise NbGraderException(
                str(error).replace("ask for --unconfined", "set c.JudgeAnswers.unconfined")
            ) from None
        for cell in nb.cells:
            if (name := checked_by(cell)) is not None:
                cell.execution_count, cell.outputs = None, _outputs(self._verdict(name, code.get(name), student), kind)
        return nb, resources

    def _verdict(self, name: str, code: str | None, student: str) -> Verdict:
        exercise = exercise_of(name)
        if code is None:
            return Verdict(exercise.name, UNANSWERED, {}, ("its cell is not in the notebook",))
        limits = confine.Limits(self.seconds, self.memory_mib, unconfined=self.unconfined)
        secret = os.environ.get("LABKIT_GRADING_SECRET", "")
        return judge(exercise, name, code, student, limits=limits, secret=secret)


def _outputs(verdict: Verdict, kind: str) -> list[Any]:
    data = {"text/plain": repr(verdict), "text/markdown": _harmless(verdict)}
    shown = [new_output("display_data", data)]
    if kind == confine.LIMITS:
        words = confine.CONFINEMENT_WORDS[kind]
        alarm = {"text/plain": words, "text/html": f'<p style="color: #d1242f"><b>{words}.</b></p>'}
        shown.insert(0, new_output("display_data", alarm))
    if verdict.outcome != RIGHT:
        why = "; ".join(verdict.faults.values()) or verdict.outcome
        error = {"ename": verdict.outcome, "evalue": why, "traceback": [f"{verdict.exercise}: {verdict.outcome}"]}
        shown.append(new_output("error", **error))
    return shown


def _harmless(verdict: Verdict) -> str:
    """Return the verdict as Markdown in which nothing that a student wrote is taken for HTML or ends its block."""
    lines = [line.replace("`", "'") for line in repr(verdict).splitlines()]
    return "\n".join(f"    {line}" for line in lines)


def configure(config: Config) -> None:
    """Put the two steps in the place of nbgrader's own."""
    made = {"generate": GenerateAssignment(), "grade": Autograde()}
    handing_out = [KeepSkeletons if step is ClearSolutions else step for step in made["generate"].preprocessors]
    grading = [JudgeAnswers if step is Execute else step for step in made["grade"].autograde_preprocessors]
    config.GenerateAssignment.preprocessors = handing_out
    config.Autograde.autograde_preprocessors = grading
    config.OverwriteCells.add_missing_cells = True
    config.CourseDirectory.course_id = "multi-gpu-training"
