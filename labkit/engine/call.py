"""Calls a function of a Python file in a worker: the plan, and what the worker does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from labkit.engine.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Call(Plan):
    """A function of a file, called once for each list of arguments; what it gives is kept."""

    lab: ClassVar[str] = "exercise"
    worker: ClassVar[str] = "labkit.engine.call"

    file: str
    function: str
    inputs: str = "[]"  # JSON: a list of argument lists

    def knobs(self) -> Iterator[dict[str, Any]]:
        for arguments in json.loads(self.inputs):
            yield {"arguments": arguments}


def measure(worker, point) -> None:
    """Append what the function gives, as JSON can hold it; a traceback names the file and its line."""
    if worker.rank:
        return
    file = Path(worker.plan.file)
    spec = importlib.util.spec_from_file_location(f"answers.{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    worker.record(given=getattr(module, worker.plan.function)(*point.arguments))
