"""What a grader asks of an answer: the cases that its notebook shows, and others, different ones for each student."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from labkit.course.verdict import Verdict


@dataclass(frozen=True)
class Cases:
    """The hidden cases of one exercise.

    They begin with the shown ones, so that no student gets points for what the notebook's check refuses. `make` draws
    the others, lists of arguments, from a student's own random numbers; `judge` takes what the answer gave for each
    list, and these: without it, the exercise's own judge does. Where calling the function is not enough, `driver` names
    a module whose `drive(function, *arguments)` tries it and returns what the judge takes. With `reference`, the code
    of a reference solution, that is tried in the same way, and what it gave comes to the judge as a third argument.
    Then the answer is believed its `calls` alone: the driver makes them again in a process without the answer, and the
    judge takes what that gives.
    `may_import` names the modules and functions of labkit that the answer and the driver may import; nothing else of
    labkit is within their reach.
    `start_s`: seconds that the driver's own imports may take, on top of the answer's.
    """

    make: Callable[[Random], list]
    judge: Callable[..., Verdict] | None = None
    driver: str = ""
    reference: tuple[str, ...] = ()
    may_import: tuple[str, ...] = ()
    start_s: float = 0.0

    def drawn(self, exercise: str, student: str, secret: str = "") -> list[list[Any]]:
        """Return the lists of arguments for one student, each once: the same every time, for the same `secret`."""
        seed = hashlib.sha256(json.dumps([exercise, student, secret]).encode()).hexdigest()
        every = [list(arguments) for arguments in (*_shown(exercise), *self.make(Random(seed)))]
        return [*{json.dumps(arguments): arguments for arguments in every}.values()]


def _shown(exercise: str) -> Sequence[Sequence[Any]]:
    """Return the lists of arguments that the notebook's check calls an answer with."""
    return _exercise(exercise).inputs


def cases_of(exercise: str) -> Cases:
    """Return the hidden cases of an exercise, such as "broadcast.pipelined"."""
    asked = _exercise(exercise)
    assert asked.cases is not None, f"{exercise} has no cases"
    return asked.cases if asked.cases.judge else replace(asked.cases, judge=asked.judge)


def _exercise(exercise: str) -> Any:
    lab, _, function = exercise.partition(".")
    return importlib.import_module(f"lessons.{lab}").check.by_name[function]


def named(inputs: Sequence[Sequence[Any]]) -> dict[str, tuple]:
    """Return cases by a name each, for the judges that tell of a case by its name."""
    return {f"in case {number}": tuple(arguments) for number, arguments in enumerate(inputs, start=1)}
