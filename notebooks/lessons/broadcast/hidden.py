"""Hidden cases of the exercises of lab 02: other sizes, numbers of GPUs and chunks than the notebook's."""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pandas as pd

from labkit.course.grading.cases import Cases
from labkit.course.verdict import RIGHT, Verdict
from lessons.broadcast.exercise import judge

_WORKER = "lessons.broadcast.worker"
_METHODS = f"{_WORKER}.methods"
_SOLUTIONS = {
    "pipelined": (f"{_METHODS}.pipelined",),
    "scatter_all_gather": (f"{_METHODS}.scatter_all_gather", f"{_METHODS}._rounds"),
}


def _broadcasts(random: Random) -> list:
    """Return elements, GPUs, chunks and a seed: chunks divide each GPU's share."""
    drawn = []
    for gpus in random.sample((2, 3, 4), 2):
        chunks = random.choice((4, 6, 8))
        drawn.append((gpus * chunks * random.randint(200, 800), gpus, chunks, random.randint(1, 99)))
    return drawn


def _judge(exercise: str, given: list, inputs: list, reference: list) -> Verdict:
    """Return the first verdict that is not "right", else the last one."""
    verdict = None
    for (elements, gpus, chunks, _), answered, due in zip(inputs, given, reference, strict=True):
        verdict = judge(
            exercise, exercise, f"answers.{exercise}", _run(elements, gpus, chunks, exercise, answered, due)
        )
        if verdict.outcome != RIGHT:
            break
    assert verdict is not None
    return verdict


def _run(elements: int, gpus: int, chunks: int, exercise: str, answered: dict, due: dict) -> Any:
    """Return what the judge reads of a run: both functions' rows and spans, and the plan."""
    named = ((f"answers.{exercise}", answered), (f"methods.{exercise}", due))
    rows = [row | {"function": name} for name, tried in named for row in tried["rows"]]
    columns = ["function", "point", "index", "lane", "origin", "target", "first", "elements", "after", "waited"]
    spans = [row | {"function": name, "point": 0} for name, tried in named for row in tried["spans"]]
    plan = SimpleNamespace(gpus=gpus, chunks=chunks, elements=elements)
    return SimpleNamespace(plan=plan, rows=pd.DataFrame(rows), spans=pd.DataFrame(spans, columns=columns))


HIDDEN = {
    name: Cases(
        _broadcasts,
        partial(_judge, name),
        driver=f"{_WORKER}.trial",
        reference=solution,
        may_import=(f"{_WORKER}.lanes", f"{_WORKER}.trial"),
        start_s=40.0,  # torch
    )
    for name, solution in _SOLUTIONS.items()
}
