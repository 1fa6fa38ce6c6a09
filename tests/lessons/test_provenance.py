"""Every table that a lesson makes of a run says where its numbers come from."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.provenance import fact, made_from, of_source
from labkit.repository import RECORDED, lesson_names

NOT_MADE = {"symptoms", "timelines"}  # of trials, which not every lesson records; several tables at once


def of_a_run(lesson: str) -> dict[str, Any]:
    """Return the public functions of a lesson that take one run and nothing else that they need."""
    module = importlib.import_module(f"lessons.{lesson}")
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and "tables" in function.__module__ and takes_a_run(function)
    }


def takes_a_run(function: Any) -> bool:
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
    ]
    return [parameter.annotation for parameter in needed] == ["Run"]


def recorded(lesson: str) -> Iterator[Run]:
    for file in sorted(RECORDED.glob(f"*/{lesson}/*/plan.json")):
        yield replay(file.parent)


@pytest.mark.parametrize("lesson", [lesson for lesson in lesson_names() if of_a_run(lesson)])
def test_every_table_of_a_recorded_run_names_its_source(lesson):
    functions, made = of_a_run(lesson), set()
    for run in recorded(lesson):
        for name, function in functions.items():
            try:
                table = function(run)
            except (KeyError, ValueError, IndexError, AttributeError, TypeError, NameError):
                continue  # a run of another plan
            if isinstance(table, pd.DataFrame):
                made.add(name)
                assert fact(table, "source"), name
                if run.source in fact(table, "source"):
                    assert fact(table, "conditions") == run.key_conditions(), name
    assert {*functions} - made <= NOT_MADE


def test_a_table_made_from_several_names_the_sources_of_all():
    tables = [of_source(pd.DataFrame({"x": [1]}), source, kept=source) for source in ("theory", "published: report")]
    made = made_from(pd.DataFrame({"y": [2]}), *tables)
    assert (fact(made, "source"), fact(made, "kept")) == ("theory · published: report", "theory")
