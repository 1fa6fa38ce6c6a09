"""What comes back from a call of the student's function, and what it prints: with real workers, for all labs."""

from __future__ import annotations

from math import nan

import pytest

from labkit.course import answer_launch, answers
from labkit.course.exercises import Exercise, Exercises
from labkit.course.verdict import HUNG, RAISED, RIGHT, WRONG, Verdict
from labkit.engine.called_function import MOST_PRINTED
from labkit.engine.run import Run

NAME = "sharding.held_bytes"

pytestmark = pytest.mark.usefixtures("answers_folder")


def call(body: str, inputs: list, before: str = "", signature: str = "x", patience_s: float = 20.0):
    answers.save(NAME, f"{before}\ndef held_bytes({signature}):\n    {body}\n")
    return answer_launch.call_answer(NAME, inputs, patience_s)


def test_what_is_returned_arrives_as_it_was():
    """None is not NaN, an integer is not a float beside one, large integers keep every digit."""
    values = [None, nan, 1, 2.5, True, "F0", 2**63 + 1, [1, None], {"a": [0.5]}]
    given = call(f"return {values}[x]", [[i] for i in range(len(values))], "from math import nan")
    assert [*map(repr, given)] == [*map(repr, values)]


def test_arrays_tensors_and_tuples_arrive_as_lists():
    before = "import numpy as np, torch"
    body = (
        "return [np.array([[1, 2]]), np.float32(0.5), np.int64(3), torch.tensor([1.5, 2.0]), (1, (2, 3)), "
        "[np.array([7]), {'a': torch.tensor(4)}], range(3)][x]"
    )
    given = call(body, [[i] for i in range(7)], before)
    assert given == [[[1, 2]], 0.5, 3, [1.5, 2.0], [1, [2, 3]], [[7], {"a": 4}], [0, 1, 2]]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("{1, 2}", "set"),
        ("{(1, 2): 3}", "dict"),
        ("[object()]", "object"),
    ],
)
def test_what_cannot_be_judged_is_said_in_the_students_words(value, word):
    verdict = call(f"return {value}", [[1]])
    assert isinstance(verdict, Verdict) and verdict.outcome == WRONG
    assert f"`held_bytes` returns a {word}" in str(verdict) or f"that holds a {word}" in str(verdict), verdict
    assert "record(" not in str(verdict) and "a row holds" not in str(verdict)


def test_a_forgotten_return_is_said():
    verdict = call("total = 2 * x", [[1], [2]])
    assert verdict.outcome == WRONG
    assert "return" in str(verdict) and "None" in str(verdict) and "nan" not in str(verdict)


def test_none_that_is_returned_on_purpose_is_given():
    assert call("return None if x else None", [[1], [2]]) == [None, None]


@pytest.mark.parametrize(
    ("signature", "body", "before"),
    [
        ("x, seen=[]", "seen.append(x); return len(seen)", ""),
        ("x", "global COUNT; COUNT += 1; return COUNT", "COUNT = 0"),
        ("x", "order = list(range(50)); random.shuffle(order); return order", "import random"),
    ],
)
def test_an_answer_that_gives_two_results_for_the_same_arguments_is_wrong(signature, body, before):
    verdict = call(body, [[1], [2]], before, signature)
    assert isinstance(verdict, Verdict) and verdict.outcome == WRONG, verdict
    for words in ("called twice with the same arguments", "mutable default argument", "random numbers without a seed"):
        assert words in str(verdict)


def test_arguments_that_an_answer_changes_do_not_change_the_next_call():
    assert call("x.append(1); return len(x)", [[[1, 2]], [[5]]]) == [3, 2]


def test_a_module_is_executed_once():
    before = "import pathlib\nlog = pathlib.Path(__file__).with_suffix('.log')\nlog.open('a').write('.')"
    assert call("return log.read_text()", [[1], [2]], before) == [".", "."]


@pytest.mark.slow
def test_a_slow_answer_is_not_accused_of_a_loop():
    verdict = call("time.sleep(30 if x == 2 else 0)", [[1], [2]], "import time", patience_s=3)
    assert verdict.outcome == HUNG
    (sentence,) = verdict.faults.values()
    assert "did not come back within 3 s" in sentence and "slow" in sentence
    assert "held_bytes(2)" in sentence


def test_another_name_is_said():
    answers.save(NAME, "def held_byte(x):\n    return 1\n")
    verdict = answer_launch.call_answer(NAME, [[1]])
    assert verdict.outcome == RAISED
    assert "defines no function `held_bytes`" in str(verdict) and "`held_byte`" in str(verdict)


def test_a_name_that_is_no_function_is_said():
    answers.save(NAME, "held_bytes = 3\n")
    assert "not a function" in str(answer_launch.call_answer(NAME, [[1]]))


@pytest.mark.parametrize("place", ["rank 0 (GPU 0)", "rank 0 (node 1, gpu-node-17, GPU 0)"])
def test_what_raises_on_a_gpu_is_told_as_on_a_cpu(place, monkeypatch):
    """The launch's own sentence names the GPU, or the node, too; a worker here has neither."""
    monkeypatch.setattr(Run, "rank_name", lambda run, rank: place)
    verdict = call("raise ValueError('too many')", [[1]])
    assert verdict.outcome == RAISED
    assert "`held_bytes(1)` raises ValueError in line 3" in str(verdict) and "too many" in str(verdict)
    assert "rank 0" not in str(verdict)


def checked(body: str, before: str = "", patience_s: float = 20.0) -> Verdict:
    """Check an answer of this body; every answer that returns is right."""
    answers.save(NAME, f"{before}\ndef held_bytes(x):\n    {body}\n")
    one = Exercise("held_bytes", [[1], [2]], lambda given, inputs: Verdict("held_bytes", RIGHT, {}))
    return Exercises("sharding", one)("held_bytes", patience_s=patience_s)


def test_each_call_is_printed_once():
    verdict = checked("print('with', x); return x")
    assert (verdict.outcome, verdict.printed.splitlines()) == (RIGHT, ["with 1", "with 2"])
    assert "with 1" in verdict._repr_markdown_() and "with 1" in repr(verdict)


def test_what_is_printed_before_an_error_is_shown_and_the_traceback_begins_at_the_answer():
    verdict = checked("print('before it'); return inner(x)", "def inner(x):\n    return 1 / 0")
    assert verdict.outcome == RAISED and "before it" in verdict.printed
    first = next(line for line in verdict.detail.splitlines() if line.startswith("  File"))
    assert "sharding_held_bytes.py" in first and "held_bytes" in first.rpartition("in ")[2]
    assert "in inner" in verdict.detail and "labkit/engine" not in verdict.detail


def test_an_error_that_follows_from_another_keeps_both():
    verdict = checked("raise ValueError('no') from error", "try:\n    {}['a']\nexcept KeyError as e:\n    error = e")
    assert "KeyError" in verdict.detail and "ValueError: no" in verdict.detail
    assert "labkit/engine" not in verdict.detail.rpartition("direct cause")[2]


@pytest.mark.slow
def test_what_an_endless_loop_printed_is_shown_and_is_not_endless():
    verdict = checked("while True: print('round')", patience_s=3)
    assert verdict.outcome == HUNG
    assert "round" in verdict.printed and len(verdict.printed) < 2 * MOST_PRINTED


def test_a_traceback_without_the_answer_stays_whole():
    text = f'{answer_launch.TRACEBACK}  File "/lib/a.py", line 1, in f\n    g()\nValueError: no\n'
    assert answer_launch.from_the_students_line(text) == text
