"""The student's package: lessons, checks and hints work in it, and no solutions.py is in it."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from exercises_tried import exercise_of

from labkit.course import answers
from labkit.course.grading.handout import NOT_FOR_STUDENTS
from labkit.course.source import code_of
from labkit.repository import NOTEBOOKS
from labkit.tools import handout as handout_command

# A lab's own workers run these reference solutions.
MEASURED = {
    "start.mean_over_ranks",
    *(
        "attention.add_tile",
        "beyond_the_node.hierarchical_all_reduce",
        "ddp_fsdp.sharded_layer",
        "one_gpu.head_loss",
        "sharding.sharded_step",
    ),
    *(f"broadcast.{name}" for name in ("pipelined", "scatter_all_gather")),
    *(f"ddp_from_scratch.{name}" for name in ("exchange", "ready")),
    *(f"fsdp_from_scratch.{name}" for name in ("backward", "clip")),
    *(f"tensor_parallel.{name}" for name in ("row", "parallel_loss")),
    *(f"optimizer_sharding.{name}" for name in ("momentum_step", "update_all")),
    "precision_memory.run_blocks",
}
STUDENT = """
import importlib, json
from labkit.course import answers
import lessons
told = {}
for name in answers.exercises():
    lab, _, exercise = name.partition(".")
    lesson = importlib.import_module(f"lessons.{lab}")
    assert lesson.check.by_name[exercise] and "no answer" in lesson.attempts(exercise).data
    assert lesson.hint(exercise).data.startswith("Hint 1 of 3")
    told[name] = [lesson.solution(exercise, anyway=anyway).data for anyway in (False, True)]
print(json.dumps([lessons.__file__, told]))
"""
WRONG = """
from labkit.course import answers
from lessons import sharding
answers.save("sharding.held_bytes", "def held_bytes(parameters, ranks, stage):\\n    return 4 * parameters\\n")
print(sharding.check("held_bytes"))
"""


@pytest.fixture(scope="module")
def workbook(tmp_path_factory):
    """Return the folder that a student unpacks."""
    folder = tmp_path_factory.mktemp("class")
    assert handout_command.main(["--folder", str(folder / "handout")]) == 0
    with zipfile.ZipFile(folder / "handout-workbook.zip") as archive:
        archive.extractall(folder)
    return folder / "workbook"


def printed(workbook: Path, code: str) -> str:
    """Return what a fresh Python prints that finds labkit in the package; it keeps answers there."""
    environment = os.environ | {"PYTHONPATH": str(workbook), "LABKIT_ANSWERS": str(workbook / "notebooks" / "answers")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True).stdout


def references() -> dict[str, str]:
    """Return the code of the reference solution of each exercise."""
    every = {}
    for name in answers.exercises():
        lab, _, function = name.partition(".")
        own = exercise_of(name).solution
        every[name] = code_of(own[0] if own else f"lessons.{lab}.solutions.{function}")
    return every


def flat(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def body_of(code: str) -> str:
    """Return the statements of a function as Python writes them, each line without its indentation."""
    (function, *_) = ast.parse(code).body
    documented = ast.get_docstring(function) is not None
    return flat("\n".join(map(ast.unparse, function.body[documented:])))


def texts(folder: Path) -> str:
    """Return all that can be read in a folder: code as Python writes it, without comments and indentation."""
    read = []
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".py":
            read.append(ast.unparse(ast.parse(file.read_bytes())))
        elif file.suffix == ".ipynb":
            read += [cell.source for cell in nbformat.read(file, 4).cells]
        elif file.suffix == ".md":
            read.append(file.read_text(encoding="utf-8"))
    return flat("\n".join(read))


def test_no_reference_solution_is_in_it_but_those_that_a_lab_measures(workbook):
    everything = texts(workbook)
    assert {name for name, code in references().items() if body_of(code) in everything} == MEASURED


def test_the_teacher_reads_which_solutions_stay_in_it():
    page = NOTEBOOKS / "teaching" / "README.md"
    (told,) = [part for part in page.read_text(encoding="utf-8").split("\n\n") if "lab 02 measures" in part.lower()]
    assert all(f"`{name}`" in told for name in MEASURED)


def test_nothing_is_in_it_that_only_a_teacher_needs(workbook):
    names = [file.relative_to(workbook).as_posix() for file in workbook.rglob("*") if file.is_file()]
    assert {
        "Makefile",
        "notebooks/12_accounting.ipynb",
        "notebooks/glossary.md",
        "labkit/node/specs.csv",
        "labkit/report/style.css",
    } < {*names}
    teachers = {"solutions.py", "tests", "teaching", "grading", "grade.py", "__pycache__", "answers"}
    assert [name for name in names if teachers & {*name.split("/")}] == []


def test_all_users_can_read_it(workbook):
    with zipfile.ZipFile(workbook.parent / "handout-workbook.zip") as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert {mode for name, mode in modes.items() if name.endswith("/")} == {stat.S_IFDIR | 0o755}
    assert {mode for name, mode in modes.items() if not name.endswith("/")} == {stat.S_IFREG | 0o644}
    assert "workbook/notebooks/lessons/" in modes


def test_make_lists_only_targets_whose_files_are_in_it(workbook):
    told = subprocess.run(["make"], cwd=workbook, capture_output=True, text=True, check=True).stdout
    makefile = (workbook / "Makefile").read_text(encoding="utf-8")
    assert {"lab", "reset", "run", "card"} < {*re.findall(r"make ([a-z-]+)", told)}
    assert not {*NOT_FOR_STUDENTS} & {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)}
    modules = {name.replace(".", "/") for name in re.findall(r"-m (labkit[.\w]*)", makefile)}
    assert len(modules) > 5
    assert all((workbook / f"{name}.py").exists() or (workbook / name / "__main__.py").exists() for name in modules)


def test_its_readme_names_targets_that_it_has_and_what_to_hand_in(workbook):
    readme = (workbook / "README.md").read_text(encoding="utf-8")
    makefile = (workbook / "Makefile").read_text(encoding="utf-8")
    named = {*re.findall(r"^ +make ([a-z-]+)", readme, re.MULTILINE)}
    assert "lab" in named and all(f"\n{target}:" in makefile for target in named - {""})
    assert "What to hand in" in readme
    rules = (workbook / "AGENTS.md").read_text(encoding="utf-8")
    assert len(rules.splitlines()) <= 25 and "hint" in rules


def test_every_lesson_checks_and_hints_and_says_that_the_teacher_has_the_solution(workbook):
    place, told = json.loads(printed(workbook, STUDENT).splitlines()[-1])
    assert Path(place).is_relative_to(workbook)
    for name in answers.exercises():
        teacher = f"Your teacher has the reference solution of `{name.partition('.')[2]}`"
        assert all(said.startswith(teacher) for said in told[name])


def test_a_wrong_answer_is_launched_there_and_told_what_is_wrong(workbook):
    told = printed(workbook, WRONG)
    assert "held_bytes: wrong" in told and "counts numbers, not bytes" in told
