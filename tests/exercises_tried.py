"""The exercises of all lessons by their names, and what functions give for their arguments, as a worker brings it."""

import copy
import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from labkit.course import answers
from labkit.course.grading.grade import exercise_of as exercise_of
from labkit.engine.called_function import as_json

# Exercises that several processes try together: no function of theirs is called alone.
ON_RANKS = {name for name in answers.exercises() if (cases := exercise_of(name).cases) is not None and cases.on_ranks}


def solution_of(name: str) -> Callable:
    """Return the reference solution of an exercise, as a function."""
    lab, _, function = name.partition(".")
    return getattr(importlib.import_module(f"lessons.{lab}.solutions"), function)


def written_as(name: str, code: str) -> Callable:
    """Return the function of an exercise that some code defines."""
    scope: dict[str, Any] = {}
    exec(compile(code, name, "exec"), scope)
    return scope[name.partition(".")[2]]


def given_by(function: Callable, inputs: Iterable) -> list:
    """Return what a function gives for each list of arguments, after a way through JSON; each has its own copy."""
    return [json.loads(as_json(function(*copy.deepcopy(list(arguments))))) for arguments in inputs]
