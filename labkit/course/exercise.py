"""Launches what a student wrote, and gives what it gave, or the verdict on why there is nothing to judge."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from labkit.course import answers
from labkit.course.verdict import HUNG, NOT_JUDGED, RAISED, UNANSWERED, WRONG, Verdict
from labkit.engine.call import Call
from labkit.engine.errors import RunError, WorkerHung
from labkit.engine.launch import launch
from labkit.engine.plan import Plan
from labkit.engine.run import Run
from labkit.story.words import say

if TYPE_CHECKING:
    from IPython.display import Markdown

LATER = "later cells use the reference solution"
MOST_SHOWN = 120  # characters of a call or a value that a sentence shows


def unanswered(name: str) -> Verdict | None:
    """Return the verdict on an exercise, such as "broadcast.pipelined", whose newest cell cannot be judged.

    None where it can. An answer that was saved before that cell is kept, and named, but it is not judged.
    """
    function, newest, saved = name.partition(".")[2], answers.newest(name), answers.file_of(name)
    if newest is None:
        return Verdict(function, UNANSWERED, {}, (LATER,))
    what = f"`{saved.name}`, saved {answers.saved_at(newest)},"
    kept = ""
    if newest != saved:
        what = f"the newest `%%answer {name}` cell, run {answers.saved_at(newest)},"
        if saved.exists():
            kept = f"; your answer of {answers.saved_at(saved)} is kept in `{saved.name}`, and not judged in its place"
    if error := answers.syntax_error(newest.read_bytes()):
        sentence = f"{what} is not valid Python ({error}): correct it and run the cell again{kept}"
        return Verdict(function, NOT_JUDGED, {"syntax": sentence})
    if lines := answers.open_steps(newest.read_bytes(), function):
        numbers = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
        sentence = f"{what} still holds a bare `...` in {numbers}: replace it by your own steps{kept}"
        return Verdict(function, UNANSWERED, {}, (sentence, LATER))
    return None


def judges_answers(check: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Decorate a lab's `check(exercise, …)`: its verdict names the version of the answer that it judged."""
    lab = check.__module__.removeprefix("labkit.labs.").partition(".")[0]

    @functools.wraps(check)
    def dated(exercise: str, **options) -> Verdict:
        return with_version(lab, exercise, check(exercise, **options))

    return dated


def launched(exercise: str, plan: Plan, patience_s: float, hangs: str) -> Run | Verdict:
    """Return the run of a plan that calls a student's code; a Verdict where that raised or hung, `hangs` saying why."""
    try:
        return launch(plan, patience_s=patience_s)
    except WorkerHung as error:
        called = _call(exercise, plan, error.point)
        sentence = f"{called} did not come back within {patience_s:.0f} s: {hangs}"
        return Verdict(exercise, HUNG, {"hung": sentence}, detail=error.detail)
    except RunError as error:
        return Verdict(exercise, RAISED, {"raised": error.sentence}, detail=error.detail)


def _call(exercise: str, plan: Plan, point: int | None) -> str:
    """Return the call of a point, such as "`held_bytes(8, 2)`"; "it" where the point has no arguments."""
    if point is None or not isinstance(plan, Call):
        return "it"
    return _written(exercise, plan.points()[point].arguments)


def _written(function: str, arguments: list) -> str:
    return f"`{function}({_brief(', '.join(map(repr, arguments)))})`"


def _brief(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def called(name: str, inputs: list, patience_s: float = 20.0) -> list | Verdict:
    """Have a worker call the answer to the exercise `name`, such as "pipeline.balanced_split".

    Gives what it gives for each list of arguments: None and NaN as they are, arrays and tuples as lists. Gives a
    Verdict where there is nothing to judge: no call returns anything, or something that no check can read, or a second
    call with the same arguments gives something else.
    """
    if (verdict := unanswered(name)) is not None:
        return verdict
    function, file = name.partition(".")[2], answers.file_of(name)
    plan = Call(gpus=1, file=str(file), function=function, inputs=json.dumps(inputs))
    run = launched(function, plan, patience_s, "a loop in it does not end, or it is too slow")
    if isinstance(run, Verdict):
        return run
    rows = run.rows.reindex(columns=["given", "again", "unreadable"])
    if len(unreadable := rows["unreadable"].dropna()):
        return Verdict(function, WRONG, {"form": unreadable.iloc[0]})
    for arguments, first, second in zip(inputs, rows["given"], rows["again"], strict=True):
        if isinstance(second, str) and second != first:
            sentence = (
                f"called twice with the same arguments, {_written(function, arguments)} gives {_brief(first)}, then "
                f"{_brief(second)}: it keeps something from one call to the next, such as a mutable default argument"
            )
            return Verdict(function, WRONG, {"remembers": sentence})
    given = [json.loads(one) if isinstance(one, str) else one for one in rows["given"]]
    if all(one is None for one in given) and not answers.returns_something(file.read_bytes(), function):
        sentence = f"`{function}` has no `return` with a value, so every call gives None: return the result"
        return Verdict(function, WRONG, {"form": sentence})
    return given


@dataclass(frozen=True)
class Exercise:
    """A function that the student writes: its name, the lists of arguments that it is called with, and its judge.

    `judge` takes what the function returned for each list of arguments, in order, and returns the verdict. `on_failure`
    may add to the verdict of a call that raised or did not come back. `hints` come in steps: where to look, what the
    structure is, almost the code.
    """

    name: str
    inputs: Sequence[Sequence[Any]]
    judge: Callable[[list], Verdict]
    on_failure: Callable[[Verdict], Verdict] = lambda verdict: verdict
    hints: tuple[str, ...] = ()


class Exercises:
    """All exercises of a lab; calling it checks one: `check = Exercises("collectives", Exercise("ring_step", …))`."""

    def __init__(self, lab: str, *exercises: Exercise):
        self.lab, self.by_name = lab, {one.name: one for one in exercises}
        self.names = tuple(self.by_name)
        self._hints_given: dict[str, int] = {}

    def __call__(self, exercise: str, *, patience_s: float = 20.0) -> Verdict:
        """Have a worker call the student's answer to `exercise`, judge what it returns, and say which version it was.

        Raises ValueError, listing the exercises, for an unknown one.
        """
        one = self._named(exercise)
        outcome = called(f"{self.lab}.{exercise}", [list(arguments) for arguments in one.inputs], patience_s)
        verdict = one.on_failure(outcome) if isinstance(outcome, Verdict) else one.judge(outcome)
        return with_version(self.lab, exercise, verdict)

    def hint(self, exercise: str) -> Markdown:
        """Return the next hint of an exercise, and the last one again once all are given.

        Raises ValueError, listing the exercises, for an unknown one.
        """
        hints = self._named(exercise).hints
        if not hints:
            return say(f"There are no hints for `{exercise}`.")
        step = min(self._hints_given.get(exercise, 0) + 1, len(hints))
        self._hints_given[exercise] = step
        return say(f"Hint {step} of {len(hints)} for `{exercise}`: {hints[step - 1]}")

    def _named(self, exercise: str) -> Exercise:
        if exercise not in self.by_name:
            raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(self.names)}")
        return self.by_name[exercise]


def with_version(lab: str, exercise: str, verdict: Verdict) -> Verdict:
    """Return the verdict with the version of the answer that it judged."""
    file = answers.file_of(f"{lab}.{exercise}")
    if verdict.outcome in (UNANSWERED, NOT_JUDGED) or not file.exists():
        return verdict
    return replace(verdict, judged=f"Judged: `{file.name}`, saved {answers.saved_at(file)}.")
