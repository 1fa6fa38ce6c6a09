"""The check judges the newest cell or says why it does not: no older answer is judged in its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from IPython.utils.capture import capture_output

from labkit.course import answer_launch, answers, record
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from lessons import sharding

NAME = "sharding.held_bytes"
RIGHT_ANSWER = """
def held_bytes(parameters, ranks, stage):
    shared = (0, 8, 12, 16)[stage]
    return parameters * (16 - shared + shared / ranks)
"""
BROKEN = RIGHT_ANSWER.replace("return parameters *", "return parameters * *")
DOTS_LEFT = RIGHT_ANSWER.replace("    return", "    ...\n    return")


pytestmark = pytest.mark.usefixtures("answers_folder")


def save_broken(text: str = BROKEN) -> None:
    with pytest.raises(SyntaxError):
        answers.save(NAME, text)


def test_a_cell_that_is_no_python_is_not_hidden_by_an_older_answer(tmp_path):
    answers.save(NAME, RIGHT_ANSWER)
    save_broken()
    verdict = sharding.check("held_bytes")
    assert verdict.outcome not in (RIGHT, WRONG, RAISED)
    (sentence,) = verdict.faults.values()
    assert "line 4" in sentence and "not valid Python" in sentence
    assert not (tmp_path / "runs").exists(), "nothing is launched"
    assert answers.file_of(NAME).read_text() == RIGHT_ANSWER, "the older answer is kept"


def test_a_cell_that_is_no_python_is_refused_where_nothing_was_saved_before():
    save_broken()
    verdict = sharding.check("held_bytes")
    assert verdict.outcome != UNANSWERED
    assert "line 4" in str(verdict)


def test_a_cell_with_dots_left_is_not_hidden_by_an_older_answer(tmp_path):
    answers.save(NAME, RIGHT_ANSWER)
    answers.save(NAME, DOTS_LEFT)
    verdict = sharding.check("held_bytes")
    assert verdict.outcome == UNANSWERED
    assert "line 4" in str(verdict) and "sharding_held_bytes.py" in str(verdict)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("newest", [BROKEN, DOTS_LEFT])
def test_the_next_good_cell_is_judged_again(newest):
    answers.save(NAME, RIGHT_ANSWER)
    with suppress(SyntaxError):
        answers.save(NAME, newest)
    assert answer_launch.unanswered_verdict(NAME) is not None
    answers.save(NAME, RIGHT_ANSWER)
    assert answer_launch.unanswered_verdict(NAME) is None


def test_a_file_that_is_no_python_is_refused_without_a_launch(tmp_path):
    answers.save(NAME, RIGHT_ANSWER)
    for content in (BROKEN.encode(), b"UNIT = 'Gr\xf6\xdfe'\n" + RIGHT_ANSWER.encode()):
        answers.file_of(NAME).write_bytes(content)
        assert "not valid Python" in str(sharding.check("held_bytes"))
    assert not (tmp_path / "runs").exists()


def test_the_verdict_names_the_version_that_was_judged():
    answers.save(NAME, RIGHT_ANSWER)
    os.utime(answers.file_of(NAME), (1e9, 1e9))  # as where the folder was copied
    verdict = sharding.check("held_bytes")
    assert verdict.outcome == RIGHT, verdict
    for shown in (repr(verdict), verdict._repr_markdown_()):
        assert "sharding_held_bytes.py" in shown
        assert record.exercise_record(NAME)["attempts"][-1]["saved"] in shown


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ("class Odd(Exception): ...\n" + RIGHT_ANSWER, True),
        (RIGHT_ANSWER + "def helper(): ...\n", True),
        (RIGHT_ANSWER.replace("    shared", "    class Odd(Exception): ...\n    shared"), True),
        (RIGHT_ANSWER.replace("    shared", "    if stage:\n        ...\n    shared"), False),
    ],
)
def test_dots_are_a_skeleton_where_the_answer_runs_through_them(text, answered):
    assert ("not answered yet" in answers.save(NAME, text)) is not answered
    assert (answer_launch.unanswered_verdict(NAME) is None) is answered


def run(shell, cell: str) -> tuple[bool, str]:
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result.success, re.sub(r"\x1b\[[0-9;]*m", "", captured.stdout + captured.stderr)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("broadcast.pipelind", "broadcast.pipelined"),
        ("held_bytes", "sharding.held_bytes"),
        ("broadcast.early_forward", "broadcast.pipelined"),
        ("", "broadcast.pipelined"),
    ],
)
def test_the_magic_refuses_what_is_no_exercise(shell, name, nearest):
    success, shown = run(shell, f"%%answer {name}\nx = 1\n")
    assert not success
    assert nearest in shown and not answers.folder().exists()
    assert "labkit/course" not in shown, "one sentence, no traceback of the workbook"


def test_the_magic_knows_every_exercise(shell):
    """The skeletons of all notebooks can be saved; so can pipeline's second exercise, which has no cell."""
    names = answers.exercises()
    assert {"broadcast.pipelined", "pipeline.balanced_split", "accounting.devices_needed", NAME} <= set(names)
    success, _ = run(shell, "%%answer pipeline.balanced_split\ndef balanced_split(times, stages): return []\n")
    assert success and answers.file_of("pipeline.balanced_split").exists()


def test_the_caret_shows_the_line_of_the_newest_cell(shell):
    run(shell, f"%%answer {NAME}\n{RIGHT_ANSWER}")
    success, shown = run(shell, f"%%answer {NAME}\n{BROKEN}")
    assert not success
    assert "return parameters * * (" in shown
    assert "return parameters * (" not in shown


def test_the_magic_is_there_once_labkit_is_imported():
    script = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_cell('import labkit')\n"
        "assert 'answer' in shell.magics_manager.magics['cell']\n"
        "import sys; assert not {'torch', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_importing_labkit_outside_a_notebook_loads_no_notebook():
    script = "import sys, labkit; assert not {'IPython', 'torch', 'labkit.course'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
