"""Launches what a student wrote, and gives what it gave, or the verdict on why there is nothing to judge."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.course import answers, syntax
from labkit.course.verdict import HUNG, NOT_JUDGED, RAISED, UNANSWERED, WRONG, Verdict
from labkit.engine.call import Call
from labkit.engine.errors import RunError, WorkerDied, WorkerHung
from labkit.engine.plan import Plan
from labkit.engine.run import Run
from labkit.launching import launch, launch_over_nodes

if TYPE_CHECKING:
    import pandas as pd

LATER = "later cells do not need your answer"
BELOW = "counted below the `%%answer` line"  # the file that is read has no such line
MOST_SHOWN = 240  # characters of a call or a value that a sentence shows: a matrix of 4 × 4 is shown whole
MOST_PRINTS = 4  # calls whose printed text a verdict shows
GLOO_MISMATCH = "Received data size doesn't match"  # gloo's words before it ends the process
MISMATCH = (
    "a rank receives another number of bytes than it expects: all ranks must make the same calls, of the same sizes, "
    "in the same order"
)
LARGE_NUMBER = re.compile(r"(?<![\w.])\d{6,}(?![\w.])")
TRACEBACK = "Traceback (most recent call last):\n"


class ReturnedValues(list[Any]):
    """What an answer returned for each list of arguments, and what it `printed`."""

    printed: str = ""


def unanswered_verdict(name: str) -> Verdict | None:
    """Return the verdict on an exercise, such as "broadcast.pipelined", whose newest cell cannot be judged.

    None where it can. An answer that was saved before that cell is kept, and named, but it is not judged.
    """
    function, newest, file = name.partition(".")[2], answers.newest_version(name), answers.file_of(name)
    if newest is None:
        return Verdict(function, UNANSWERED, {}, (LATER,))
    version, code = newest
    what, kept = f"`{file.name}`, saved {version['saved']},", ""
    if file.read_bytes() != code:
        what = f"the newest `%%answer {name}` cell, run {version['saved']},"
        kept = f"; your earlier answer is kept in `{file.name}`, and not judged in its place"
    if version["state"] == syntax.INVALID:
        why = f"is not valid Python ({syntax.syntax_error(code)}, {BELOW}): correct it and run the cell again"
        return Verdict(function, NOT_JUDGED, {"syntax": f"{what} {why}{kept}"})
    if version["state"] == syntax.OPEN:
        lines = syntax.open_steps(code, *answers.functions_of(name))
        numbers = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}, {BELOW}"
        what = what if kept else f"`{file.name}`"  # a page on which nothing was answered tells no time
        sentence = f"{what} still holds a bare `...` in {numbers}: replace it by your own steps{kept}"
        return Verdict(function, UNANSWERED, {}, (sentence, LATER))
    return None


def launch_answer(exercise: str, plan: Plan, patience_s: float, hangs: str) -> Run | Verdict:
    """Return the run of a plan that calls a student's code; a Verdict where that raised or hung, `hangs` saying why."""
    try:
        return (launch_over_nodes if plan.several_nodes else launch)(plan, patience_s=patience_s)
    except WorkerHung as error:
        called = _call(exercise, plan, error.point)
        sentence = f"{called} did not come back within {patience_s:.0f} s: {hangs}"
        detail = _to_the_students_line(error.detail)
        return Verdict(exercise, HUNG, {"hung": sentence}, detail=detail, printed=_printed_logs(error))
    except RunError as error:
        detail = from_the_students_line(error.detail)
        return Verdict(
            exercise, RAISED, _faults_of_error(exercise, plan, error), detail=detail, printed=_printed_logs(error)
        )


def _faults_of_error(exercise: str, plan: Plan, error: RunError) -> dict[str, str]:
    """Say in plain words which call raised what, and in which line; of an answer that ended its process, what to do.

    An error that did not come from the answer keeps its sentence.
    """
    called = _call(exercise, plan, error.point)
    if GLOO_MISMATCH in error.logs:
        return {"mismatch": MISMATCH}
    if (isinstance(error, WorkerDied) and error.signal is None) or error.kind == "SystemExit":
        return {"ends": f"{called} ends the process that calls it: return the result, without `exit` or `quit`"}
    lines = re.findall(
        rf'^  File "{re.escape(str(answers.folder()))}{re.escape(os.sep)}.*?", line (\d+)', error.detail, re.M
    )
    if error.kind and not lines and "defines no function" in error.message:
        return {"missing": error.message}
    if not lines or not error.kind:
        return {"raised": error.sentence}
    what = f": {error.message}" if error.message else ""
    return {"raised": f"{called} raises {error.kind} in line {lines[-1]}, {BELOW}{what}"}


def from_the_students_line(traceback: str) -> str:
    """Return a traceback, and each that it follows from, without the frames above the first one in an answer's file.

    A traceback that never enters an answer is returned as it is.
    """
    frame_of_answer = f'  File "{answers.folder()}{os.sep}'
    parts = traceback.split(TRACEBACK)
    return TRACEBACK.join([parts[0], *(_from_line(part, frame_of_answer) for part in parts[1:])])


def _from_line(frames: str, first: str) -> str:
    return frames[frames.index(first) :] if first in frames else frames


def _to_the_students_line(stacks: str) -> str:
    """Return where each rank stands, innermost frame first, without the frames that called the answer.

    A stack that is not in an answer is returned as it is.
    """
    frame_of_answer, kept, inside = f'  File "{answers.folder()}{os.sep}', [], False
    for line in stacks.splitlines():
        frame = line.startswith("  File ")
        inside = frame and (inside or line.startswith(frame_of_answer))
        if not inside or line.startswith(frame_of_answer):
            kept.append(line)
    return "\n".join(kept)


def _printed_logs(error: RunError) -> str:
    """Return what the ranks of a failed launch printed; "" where they printed nothing."""
    return error.logs if "printed:" in error.logs else ""


def printed_in(rows: pd.DataFrame) -> str:
    """Return what an answer printed in its first calls, from the column `printed` of a run's rows; "" for nothing."""
    if "printed" not in rows:
        return ""
    texts = [text.rstrip("\n") for text in rows["printed"].dropna().drop_duplicates()]
    more = [f"… and {len(texts) - MOST_PRINTS} more"] if len(texts) > MOST_PRINTS else []
    return "\n".join([*texts[:MOST_PRINTS], *more])


def _call(exercise: str, plan: Plan, point: int | None) -> str:
    """Return the call of a point, such as "`held_bytes(8, 2)`"; the name alone where the point has no arguments."""
    if point is None or not isinstance(plan, Call):
        return f"`{exercise}`"
    return call_text(exercise, plan.points()[point].arguments)


def call_text(function: str, arguments: list) -> str:
    """Return a call as a sentence shows it: long lists cut short, large numbers in groups of three digits."""
    given = LARGE_NUMBER.sub(lambda digits: f"{int(digits[0]):_}", ", ".join(map(repr, arguments)))
    return f"`{function}({truncate(given)})`"


def truncate(text: str) -> str:
    """Return a text, or its beginning where it is long."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def call_answer(name: str, inputs: list, patience_s: float = 20.0) -> ReturnedValues | Verdict:
    """Have a worker call the answer to the exercise `name`, such as "pipeline.balanced_split".

    Gives what it gives for each list of arguments: None and NaN as they are, arrays and tuples as lists. Gives a
    Verdict where there is nothing to judge: no call returns anything, or something that no check can read, or a second
    call with the same arguments gives something else.
    """
    if (verdict := unanswered_verdict(name)) is not None:
        return verdict
    function, file = name.partition(".")[2], answers.file_of(name)
    plan = Call(gpus=1, file=str(file), function=function, inputs=json.dumps(inputs))
    run = launch_answer(function, plan, patience_s, "a loop in it does not end, or it is too slow")
    if isinstance(run, Verdict):
        return run
    rows = run.rows.reindex(columns=["given", "again", "unreadable"]).to_dict("records")
    return returned_values(function, file.read_bytes(), inputs, rows, printed_in(run.rows))


def returned_values(
    function: str, code: bytes, inputs: Sequence[Any], rows: Sequence[dict[str, Any]], printed: str
) -> ReturnedValues | Verdict:
    """Return what an answer gives for each list of arguments, from a row per list: `given`, `again`, `unreadable`.

    Gives a Verdict where there is nothing to judge; see `call_answer`.
    """
    for row in rows:
        if isinstance(row.get("unreadable"), str):
            return Verdict(function, WRONG, {"form": row["unreadable"]}, printed=printed)
    for arguments, row in zip(inputs, rows, strict=True):
        first, second = row.get("given"), row.get("again")
        if isinstance(first, str) and isinstance(second, str) and second != first:
            sentence = (
                f"called twice with the same arguments, {call_text(function, arguments)} gives {truncate(first)}, "
                f"then {truncate(second)}: it must give the same each time. Either it draws random numbers without a "
                "seed, or it keeps something from one call to the next, such as a mutable default argument"
            )
            return Verdict(function, WRONG, {"remembers": sentence}, printed=printed)
    given = ReturnedValues(json.loads(text) if isinstance(text := row.get("given"), str) else text for row in rows)
    given.printed = printed
    if all(value is None for value in given) and not syntax.returns_something(code, function):
        sentence = f"`{function}` has no `return` with a value, so every call gives None: return the result"
        return Verdict(function, WRONG, {"form": sentence}, printed=given.printed)
    return given
