"""Calls a function of a Python file in a worker: the plan, and what the worker does."""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.plan import Plan

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


@dataclass(frozen=True, kw_only=True)
class Call(Plan):
    """A function of a file, called twice for each list of arguments; what it gives is kept."""

    lab: ClassVar[str] = "exercise"
    worker: ClassVar[str] = "labkit.engine.call"

    file: str
    function: str
    inputs: str = "[]"  # JSON: a list of argument lists

    def knobs(self) -> Iterator[dict[str, Any]]:
        for arguments in json.loads(self.inputs):
            yield {"arguments": arguments}


def measure(worker: Any, point: SimpleNamespace) -> None:
    """Append what two calls with the same arguments give, `given` and `again`, as JSON text; or why it is `unreadable`.

    The file is executed once, before the first call; a traceback names the file and its line. Text keeps what a table
    would change: None beside NaN, integers beside floats. `printed` is what the first of the two calls printed.
    """
    if worker.rank:
        return
    function = worker.plan.function
    if worker.state is None:
        worker.state = function_of(Path(worker.plan.file), function)
    prints = Prints()
    try:  # as text before the second call, which may change what the first one returned
        with redirect_stdout(prints):
            given = as_json(worker.state(*copy.deepcopy(point.arguments)))
        with redirect_stdout(io.StringIO()):
            again = as_json(worker.state(*copy.deepcopy(point.arguments)))
        worker.record(given=given, again=again, **prints.column())
    except Unreadable as error:
        worker.record(unreadable=f"`{function}` returns {error}; a check can read {READABLE}")


def function_of(file: Path, name: str) -> Callable[..., Any]:
    """Return the function `name` of a file. Raises AttributeError or TypeError where there is none, naming what is."""
    spec = importlib.util.spec_from_file_location(f"answers.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise TypeError(f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        defined = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = ", ".join(f"`{key}`" for key in defined) or "none"
        raise AttributeError(f"{file.name} defines no function `{name}`; it defines {names}")
    if not callable(function := getattr(module, name)):
        raise TypeError(f"`{name}` in {file.name} is not a function, but of type {type(function).__name__}")
    return function


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
