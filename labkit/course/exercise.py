"""Launches what a student wrote, and gives what it gave, or the verdict on why there is nothing to judge."""

from __future__ import annotations

import json

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, UNANSWERED, Verdict
from labkit.engine.call import Call
from labkit.engine.errors import RunError, WorkerHung
from labkit.engine.launch import launch
from labkit.engine.plan import Plan
from labkit.engine.run import Run


def unanswered(name: str) -> Verdict | None:
    """Give the verdict "not answered yet" on the exercise `name`, such as "broadcast.pipelined"; None where it was."""
    file = answers.file_of(name)
    if file.exists() and answers.is_answered(file.read_text()):
        return None
    return Verdict(name.partition(".")[2], UNANSWERED, {}, ("the workbook goes on with its own",))


def launched(exercise: str, plan: Plan, patience_s: float, hangs: str) -> Run | Verdict:
    """Give the run of a plan that calls a student's code; a Verdict where that raised or hung, `hangs` saying why."""
    try:
        return launch(plan, patience_s=patience_s)
    except WorkerHung as error:
        sentence = f"it did not come back within {patience_s:.0f} s: {hangs}"
        return Verdict(exercise, HUNG, {"hung": sentence}, detail=error.detail)
    except RunError as error:
        return Verdict(exercise, RAISED, {"raised": error.sentence}, detail=error.detail)


def called(name: str, inputs: list, patience_s: float = 20.0) -> list | Verdict:
    """Have a worker call the answer to the exercise `name`, such as "pipeline.balanced_split".

    Gives what it gives for each list of arguments; a Verdict where there is nothing to judge.
    """
    if (verdict := unanswered(name)) is not None:
        return verdict
    function = name.partition(".")[2]
    plan = Call(gpus=1, file=str(answers.file_of(name)), function=function, inputs=json.dumps(inputs))
    run = launched(function, plan, patience_s, "a loop in it never ends")
    return run if isinstance(run, Verdict) else list(run.rows.reindex(columns=["given"])["given"])
