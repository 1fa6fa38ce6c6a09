"""Answers: a cell is saved as a file, and a skeleton never replaces what was answered before."""

from __future__ import annotations

import re

import pytest

from labkit.course import answers, syntax
from labkit.engine.errors import NowhereToWrite

SKELETON = "def pipelined(source, copies, chunks, lanes):\n    ...\n"
ANSWER = "def pipelined(source, copies, chunks, lanes):\n    lanes.wait()\n"


pytestmark = pytest.mark.usefixtures("answers_folder")


def test_an_answer_is_saved_as_it_was_written_and_replaces_a_skeleton_and_an_answer(answers_folder):
    answers.save("broadcast.pipelined", SKELETON)
    for text in (ANSWER, ANSWER + "# better\n"):
        said = answers.save("broadcast.pipelined", text)
        assert said == "`broadcast.pipelined`: saved (`broadcast_pipelined.py`)."
        assert (answers_folder / "broadcast_pipelined.py").read_text() == text


def test_a_skeleton_is_saved_and_says_so():
    said = answers.save("broadcast.pipelined", SKELETON)
    assert "not answered yet: replace each `...` by your own steps" in said
    assert syntax.state_of(answers.file_of("broadcast.pipelined").read_text()) == syntax.OPEN


def test_a_skeleton_never_replaces_an_answer():
    answers.save("broadcast.pipelined", ANSWER)
    said = answers.save("broadcast.pipelined", SKELETON)
    assert "your answer saved earlier in `broadcast_pipelined.py` is kept" in said
    assert answers.file_of("broadcast.pipelined").read_text() == ANSWER


def test_where_nothing_can_be_written_an_answer_is_refused_and_a_skeleton_is_not(tmp_path, monkeypatch):
    """As in a read-only checkout: a notebook that nobody answered runs to its end."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "file" / "answers"))
    wanted = r"answers cannot be written \(Not a directory\): set LABKIT_ANSWERS to a folder of your own"
    assert re.search(f"not answered yet, and .*{wanted}", answers.save("broadcast.pipelined", SKELETON))
    with pytest.raises(NowhereToWrite, match=f"`broadcast.pipelined` is not saved; .*{wanted}"):
        answers.save("broadcast.pipelined", ANSWER)


def test_what_is_no_python_is_refused_with_its_line():
    answers.save("broadcast.pipelined", ANSWER)
    with pytest.raises(SyntaxError) as caught:
        answers.save("broadcast.pipelined", "def pipelined(:\n    pass\n")
    assert caught.value.lineno == 1
    assert caught.value.filename == "below %%answer broadcast.pipelined"
    assert answers.file_of("broadcast.pipelined").read_text() == ANSWER


@pytest.mark.parametrize(
    "name", ["", "pipelined", "broadcast.", ".pipelined", "../../etc.passwd", "a.b.c", "a b", "broadcast.pipe/lined"]
)
def test_a_bad_name_says_what_a_good_one_is(name):
    with pytest.raises(ValueError, match=r"say lab.function, such as %%answer broadcast.pipelined"):
        answers.save(name, ANSWER)


def test_each_function_of_an_answer_counts_and_nothing_beside_them():
    text = "class Odd(Exception): ...\ndef first(): ...\ndef second():\n    return 2\ndef third():\n    ...\n"
    assert syntax.open_steps(text, "first", "second") == [2]
    assert syntax.open_steps(text, "second", "third") == [6]
    assert syntax.state_of(text, "second") == syntax.ANSWER and syntax.state_of(text) == syntax.OPEN


@pytest.mark.parametrize(
    "text, answered",
    [
        (SKELETON, False),
        ("for part in parts:\n    arrived = ...\n    ...\n", False),
        ("x = source[..., 0]\n", True),
        ("def f() -> tuple[int, ...]:\n    return (1,)\n", True),
        ("# only a comment with ...\n", True),
        ("def (", True),
    ],
)
def test_a_skeleton_has_dots_where_steps_belong(text, answered):
    assert (syntax.state_of(text) != syntax.OPEN) is answered
