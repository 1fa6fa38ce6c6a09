"""A function of a Python file, what it returns as JSON text, and what it prints.

Imports nothing of labkit: it also runs where an answer is graded, and labkit is out of reach there.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

MOST_PRINTED = 2_000  # characters of one call that are kept: an endless loop may print gigabytes
READABLE = "numbers, text, True, False, None, and lists, tuples, dicts, arrays and tensors of them"


class Prints(io.TextIOBase):
    """What one call prints: its first characters are kept in `text`, and go to the log, too; the rest goes nowhere."""

    def __init__(self):
        self.text, self._log = "", sys.stdout

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        taken = text[: MOST_PRINTED - len(self.text)]
        if taken:
            self._log.write(taken)
            self.text += taken
            if len(self.text) == MOST_PRINTED:
                self._log.write("…\n")
        return len(text)

    def column(self) -> dict[str, str]:
        """Return what was printed as a row's column `printed`; none where nothing was."""
        return {"printed": self.text} if self.text else {}


class Unreadable(TypeError):
    """What a function returned cannot be written as JSON; the message says what it is."""


def load_function(file: Path, name: str) -> Callable[..., Any]:
    """Return the function `name` of a file. Raises AttributeError or TypeError where there is none, naming what is."""
    return load_functions(file, name)[name]


def load_functions(file: Path, *names: str) -> dict[str, Callable[..., Any]]:
    """Return functions of a file by their names. Raises AttributeError or TypeError, naming those that are missing."""
    spec = importlib.util.spec_from_file_location(f"answers.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise TypeError(f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if missing := [name for name in names if not hasattr(module, name)]:
        defined = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        function = "function" if len(missing) == 1 else "functions"
        raise AttributeError(f"{file.name} defines no {function} {_listed(missing)}; it defines {_listed(defined)}")
    functions = {name: getattr(module, name) for name in names}
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"`{name}` in {file.name} is not a function, but of type {type(function).__name__}")
    return functions


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def results_of_two_calls(function: Callable[..., Any], name: str, arguments: list) -> dict[str, str]:
    """Return what two calls with the same arguments give, `given` and `again`, as JSON; or why it is `unreadable`.

    `printed` is what the first call printed.
    """
    prints = Prints()
    try:  # as text before the second call, which may change what the first one returned
        with redirect_stdout(prints):
            given = as_json(function(*copy.deepcopy(arguments)))
        with redirect_stdout(io.StringIO()):
            again = as_json(function(*copy.deepcopy(arguments)))
    except Unreadable as error:
        return {"unreadable": f"`{name}` returns {error}; a check can read {READABLE}"}
    return {"given": given, "again": again, **prints.column()}


def as_json(value: Any) -> str:
    """Return a value as JSON text. Raises Unreadable, saying what the value is, where JSON cannot hold it."""

    def plain(inner: Any) -> Any:
        if isinstance(inner, range):
            return list(inner)
        if hasattr(inner, "tolist"):  # arrays, tensors and their scalars
            return inner.tolist()
        inside = "" if inner is value else f" that holds a {type(inner).__name__}"
        raise Unreadable(f"a {type(value).__name__}{inside}")

    try:
        return json.dumps(value, default=plain)
    except Unreadable:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"a {type(value).__name__} ({error})") from None
