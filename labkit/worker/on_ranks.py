"""An answer that several ranks run together: a lesson's driver tries it on each of them, and the reference solution."""

from __future__ import annotations

import importlib
import json
from contextlib import redirect_stdout
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

from labkit.engine.call import CallOnRanks
from labkit.engine.called_function import Prints, as_json, load_functions
from labkit.engine.worker import Worker
from labkit.worker.settings import prepare as prepare


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Append what the driver gives on this rank, as JSON text in `given`, and what the answer `printed`."""
    if worker.rank >= point.ranks:
        return
    plan: CallOnRanks = worker.plan
    if point.who == "reference":
        found = dict(zip(plan.functions, map(resolve_name, plan.references), strict=True))
    else:
        found = load_functions(Path(plan.file), *plan.functions)
    answer = found if len(found) > 1 else found[plan.functions[0]]
    world = SimpleNamespace(rank=worker.rank, ranks=point.ranks, group=worker.state[point.ranks])
    with redirect_stdout(prints := Prints()):
        given = importlib.import_module(plan.driver).drive(answer, world, *json.loads(json.dumps(point.arguments)))
    worker.record(given=as_json(given), **prints.column())
