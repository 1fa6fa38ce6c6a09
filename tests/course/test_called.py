"""What comes back from a call of the student's function: with real workers, for all labs at once."""

from __future__ import annotations

import math

import pytest

from labkit.course import answers, exercise
from labkit.course.verdict import HUNG, RAISED, WRONG, Verdict
from labkit.engine.places import Places

NAME = "sharding.held_bytes"

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.fixture
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")


def call(body: str, inputs: list, before: str = "", signature: str = "x", patience_s: float = 20.0):
    answers.save(NAME, f"{before}\ndef held_bytes({signature}):\n    {body}\n")
    return exercise.called(NAME, inputs, patience_s)


def test_what_is_returned_arrives_as_it_was():
    """None is not NaN, an integer is not a float beside one, large integers keep every digit."""
    values = [None, math.nan, 1, 2.5, True, "F0", 2**63 + 1, [1, None], {"a": [0.5]}]
    given = call(
        f"return [{', '.join(map(repr, values)).replace('nan', 'float(`nan`)')}][x]".replace("`", "'"),
        [[i] for i in range(len(values))],
    )
    assert math.isnan(given[1]) and given[1] is not None
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
        ("(i for i in [1])", "generator"),
        ("1j", "complex"),
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
        ("x, seen=[]", "seen.append(x); return seen", ""),
        ("x", "global COUNT; COUNT += 1; return COUNT", "COUNT = 0"),
    ],
)
def test_an_answer_that_remembers_earlier_calls_is_wrong(signature, body, before):
    verdict = call(body, [[1], [2]], before, signature)
    assert isinstance(verdict, Verdict) and verdict.outcome == WRONG, verdict
    assert "called twice with the same arguments" in str(verdict)
    assert "mutable default argument" in str(verdict)


def test_an_answer_that_shuffles_without_a_seed_gives_two_results_and_is_told_of_seeds():
    verdict = call("order = list(range(50)); random.shuffle(order); return order", [[1]], "import random")
    assert isinstance(verdict, Verdict) and verdict.outcome == WRONG, verdict
    (sentence,) = verdict.faults.values()
    assert "called twice with the same arguments" in sentence and "must give the same each time" in sentence
    assert "random numbers without a seed" in sentence


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
    verdict = exercise.called(NAME, [[1]])
    assert verdict.outcome == RAISED
    assert "defines no function `held_bytes`" in str(verdict) and "`held_byte`" in str(verdict)


def test_a_name_that_is_no_function_is_said():
    answers.save(NAME, "held_bytes = 3\n")
    assert "`held_bytes` is a int" not in str(verdict := exercise.called(NAME, [[1]]))
    assert "not a function" in str(verdict)


@pytest.mark.parametrize("place", ["rank 0 (GPU 0)", "rank 0 (node 1, gpu-node-17, GPU 0)"])
def test_what_raises_on_a_gpu_is_told_as_on_a_cpu(place, monkeypatch):
    """The launch's own sentence names the GPU, or the node, too; a worker here has neither."""
    monkeypatch.setattr(Places, "place", lambda run, rank: place)
    verdict = call("raise ValueError('too many')", [[1]])
    assert verdict.outcome == RAISED
    assert "`held_bytes(1)` raises ValueError in line 3" in str(verdict) and "too many" in str(verdict)
    assert "rank 0" not in str(verdict)
