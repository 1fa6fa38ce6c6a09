"""Every exercise of every lab: its hints, its reference solution, and what its judge says of slips and odd values."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from exercises_tried import ON_RANKS, exercise_of, given_by, written_as
from slips import SLIPS, slipped, solution

from labkit.course import answers
from labkit.course.exercises import POINTS
from labkit.course.source import code_of
from labkit.course.verdict import WRONG, Verdict

NAMES = answers.exercises()
FOLDER = Path(answers.__file__).parents[2] / "notebooks" / "lessons"


def judged(name: str, text: str) -> Verdict:
    """Return the verdict on what a text's function returns, as it comes back from a worker through JSON."""
    one = exercise_of(name)
    assert one.judge is not None
    return one.judge(given_by(written_as(name, text), json.loads(json.dumps(one.inputs))), one.inputs)


def test_every_lab_has_at_least_two_exercises_and_each_is_tried_with_three_slips():
    labs = [path.parent.name for path in FOLDER.glob("*/plan.py")] + ["accounting"]
    counts = {lab: sum(name.startswith(f"{lab}.") for name in NAMES) for lab in labs}
    assert [lab for lab, count in counts.items() if count < 2] == []
    launches = {name for name in NAMES if exercise_of(name).check is not None} | ON_RANKS
    assert {*NAMES} - launches <= {*SLIPS}, "exercises with a launch of their own are tried in their lab's tests"
    assert [name for name, slips in SLIPS.items() if len(slips) < 3] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_a_grade_and_three_hints_of_which_only_the_last_is_code(name):
    one = exercise_of(name)
    assert one.grade in POINTS and len(one.hints) == 3
    assert all(hint.strip() for hint in one.hints)
    assert "`" in one.hints[2] or "http" in one.hints[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_exercise_has_a_reference_solution_that_can_be_shown(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path))
    lab, _, function = name.partition(".")
    shown = importlib.import_module(f"lessons.{lab}").solution(function, anyway=True)
    assert all(f"def {part}(" in shown.data for part in exercise_of(name).functions)


def test_every_exercise_is_in_a_notebook_with_the_parameters_of_its_solution_and_is_checked_there():
    asked = {}
    for path in (FOLDER.parents[1] / "notebooks").glob("*.ipynb"):
        sources = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        for task, (magic, _, code) in zip(sources, (source.partition("\n") for source in sources[1:]), strict=False):
            if not magic.startswith("%%answer"):
                continue
            name = magic.split()[1]
            assert name not in asked
            asked[name], one = parameters(code, name), exercise_of(name)
            assert f"{one.grade.capitalize()}, {one.points} point" in task and f'.hint("{one.name}")' in task, name
            check = re.compile(rf'^\w+\.check\("{name.partition(".")[2]}".*\)\Z', re.MULTILINE)
            assert len([*filter(check.search, sources)]) == 1, name
    assert {*asked} == {*NAMES}
    solved = {name: parameters(solution_text(name), name) for name in NAMES}
    assert {name: asked[name] for name in solved} == solved


def solution_text(name: str) -> str:
    return "\n\n".join(map(code_of, exercise_of(name).solution)) or solution(name)


def parameters(code: str, name: str) -> list[list[str]]:
    """Return the names of the parameters of each function of an exercise, in order."""
    functions = {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    return [[argument.arg for argument in functions[part].args.args] for part in exercise_of(name).functions]


@pytest.mark.parametrize(("name", "slip"), [(name, slip) for name, slips in SLIPS.items() for slip in slips])
def test_a_slip_is_named(name, slip):
    old, new, kind = slip
    verdict = judged(name, slipped(name, old, new))
    assert verdict.outcome == WRONG and kind in verdict.faults, verdict


def test_a_mistake_that_one_result_shows_by_chance_is_not_named():
    """Small totals alone are rounded down, which for these gives what rounding to the nearest number gives."""
    text = """
def devices_needed(total_gib, device_gb):
    from math import ceil
    quotient = total_gib * 2**30 / (device_gb * 10**9)
    return ceil(quotient) if total_gib > 100 else int(quotient)
"""
    assert [*judged("accounting.devices_needed", text).faults] == ["wrong"]


@pytest.mark.parametrize(
    ("name", "old", "new", "blamed"),
    [
        ("start.first_cause", "if errors:", "if True:\n        return len(reports)\n    if errors:", "first_listed"),
        ("start.first_cause", "if errors:", "if True:\n        return reports[-1][0]\n    if errors:", "first_listed"),
        ("topology.slowest_hop", '["PIX", "PXB", "PHB", "NODE"', '["PIX", "PHB", "PXB", "NODE"', "alphabet"),
        ("topology.slowest_hop", '"PIX", "PXB", "PHB", "NODE"', '"NODE", "PIX", "PHB", "PXB"', "alphabet"),
        ("ddp_fsdp.sent_bytes", "* 4 *", "* 2 *", "one_pass"),
        ("ddp_fsdp.sent_bytes", "* 4 *", "* 8 *", "whole"),
        ("sharding.held_bytes", "weights + gradients + states", "2 * (weights + gradients + states)", "together"),
        ("benchmarking.faster", ', method="inclusive"', "", "whole_range"),
    ],
)
def test_a_mistake_that_was_not_made_is_not_named(name, old, new, blamed):
    text = slipped(name, old, new).replace("-int(path[2:])", "int(path[2:])")  # the fewest links as the fastest, too
    verdict = judged(name, text)
    assert verdict.outcome == WRONG and blamed not in verdict.faults, verdict
