"""Verdicts: what was found, in Markdown and in plain text."""

from labkit.course import Verdict
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG


def test_a_right_answer_lists_its_merits():
    verdict = Verdict("pipelined", RIGHT, {}, ("all copies are equal", "it took 3 ms"))
    assert verdict._repr_markdown_() == "✔ **`pipelined`: right**\n\n- ✔ all copies are equal\n- ✔ it took 3 ms"
    assert repr(verdict) == "pipelined: right\nall copies are equal\nit took 3 ms"


def test_a_wrong_answer_lists_its_faults():
    verdict = Verdict("pipelined", WRONG, {"early_forward": "a forward did not wait", "bytes": "too many"})
    assert verdict._repr_markdown_() == "✘ **`pipelined`: wrong**\n\n- ✘ a forward did not wait\n- ✘ too many"


def test_a_traceback_stands_as_it_is():
    verdict = Verdict("pipelined", RAISED, {"raised": "rank 0 raised"}, detail='  File "a.py", line 3\n    a *b* <c>\n')
    assert verdict._repr_markdown_().endswith('```text\nFile "a.py", line 3\n    a *b* <c>\n```')
    assert repr(verdict).splitlines()[:2] == ["pipelined: raised", "rank 0 raised"]


def test_an_unanswered_exercise_is_no_failure():
    verdict = Verdict("pipelined", UNANSWERED, {}, ("the workbook goes on with its own",))
    assert verdict._repr_markdown_().startswith("○ **`pipelined`: not answered yet**")
