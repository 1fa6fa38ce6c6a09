"""Calls a function of a Python file in workers: the plans, and what the worker of the first one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.called_function import load_function, results_of_two_calls
from labkit.engine.plan import Plan


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


@dataclass(frozen=True, kw_only=True)
class CallOnRanks(Plan):
    """Functions of a file, and the reference solution, each tried by a driver on several ranks that communicate.

    `driver` names a module; `drive(function, world, *arguments)` of it tries the function on each rank, or, of several,
    a dict of them. The first of the arguments says how many ranks there are. CPU processes, on every node: the cases
    ask for more ranks than it may have GPUs. A point adds who ("reference", "yours"), ranks and arguments.
    """

    lab: ClassVar[str] = "exercise"
    worker: ClassVar[str] = "labkit.worker.on_ranks"

    file: str
    functions: tuple[str, ...]
    references: tuple[str, ...]
    driver: str
    inputs: str = "[]"  # JSON: a list of argument lists
    device: str = "cpu"

    def knobs(self) -> Iterator[dict[str, Any]]:
        for arguments in json.loads(self.inputs):
            for who in ("reference", "yours"):
                yield {"who": who, "ranks": arguments[0], "arguments": arguments}


def measure(worker: Any, point: SimpleNamespace) -> None:
    """Append what two calls with the same arguments give, `given` and `again`, as JSON text; or why it is `unreadable`.

    The file is executed once, before the first call; a traceback names the file and its line. Text keeps what a table
    would change: None beside NaN, integers beside floats. `printed` is what the first of the two calls printed.
    """
    if worker.rank:
        return
    function = worker.plan.function
    if worker.state is None:
        worker.state = load_function(Path(worker.plan.file), function)
    worker.record(**results_of_two_calls(worker.state, function, point.arguments))
