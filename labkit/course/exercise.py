"""Runs a student's function in a worker, on several inputs, and gives what it gave, or why it could not be called."""

from __future__ import annotations

import json

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, UNANSWERED, Verdict
from labkit.engine.errors import RunError, WorkerHung
from labkit.engine.launch import launch


def called(answer, exercise: str, inputs: list, patience_s: float = 20.0) -> list | Verdict:
    """Give what the answer to `exercise` gives for each list of arguments; a Verdict where there is nothing to judge.

    `answer` is the lab's plan that has a worker call it: a subclass of lab 03's `Answer`.
    """
    file = answers.file_of(f"{answer.lab}.{exercise}")
    if not file.exists() or not answers.is_answered(file.read_text()):
        return Verdict(exercise, UNANSWERED, {}, ("the workbook goes on with its own",))
    plan = answer(gpus=1, function=exercise, answers=str(answers.folder()), inputs=json.dumps(inputs))
    try:
        run = launch(plan, patience_s=patience_s)
    except WorkerHung as error:
        sentence = f"it did not come back within {patience_s:.0f} s: a loop in it never ends"
        return Verdict(exercise, HUNG, {"hung": sentence}, detail=error.detail)
    except RunError as error:
        return Verdict(exercise, RAISED, {"raised": error.sentence}, detail=error.detail)
    return list(run.rows.reindex(columns=["given"])["given"])
