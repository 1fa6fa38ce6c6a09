"""The check of lab 14's answers: what wrong answers are told; answers that raise, never end or give another type."""

import json

import pytest

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG
from lessons import beyond_the_node
from lessons.beyond_the_node import solutions
from lessons.beyond_the_node.exercises import ACCUMULATIONS, check

pytestmark = pytest.mark.usefixtures("elsewhere")


def faults(name: str, cases, function) -> dict[str, str]:
    """Return the faults of a function's results as they come back from a worker, through JSON."""
    judge = check.by_name[name].judge
    assert judge is not None
    return judge(json.loads(json.dumps([function(*case) for case in cases])), cases).faults


def test_what_a_wrong_accumulation_is_told():
    own = solutions.accumulation_for
    assert faults("accumulation_for", ACCUMULATIONS, own) == {}
    assert faults("accumulation_for", ACCUMULATIONS, lambda e, c, s: e * s / ((1 - e) * c)) == {
        "unrounded": "`accumulation_for(0.9, 0.1, 0.23)` gives 20.7 instead of 21. Micro-batches come whole."
    }
    found = faults("accumulation_for", ACCUMULATIONS, lambda *case: own(*case) + (own(*case) == 3))
    assert found == {"one_more": "`accumulation_for(0.75, 0.5, 0.5)` gives 4 instead of 3. One less is enough."}
    swapped = faults("accumulation_for", ACCUMULATIONS, lambda e, c, s: own(e, s, c))
    assert swapped["upside_down"].endswith("Computing and communication are swapped.")
    assert set(faults("accumulation_for", ACCUMULATIONS, lambda *case: None)) == {"form"}


@pytest.mark.slow
def test_answers_in_a_worker():
    name, head = "beyond_the_node.accumulation_for", "def accumulation_for(efficiency, compute_s, communication_s):\n"
    assert beyond_the_node.check("accumulation_for").outcome == UNANSWERED
    answers.save(
        name,
        f"import math\n\n\n{head}    k = efficiency * communication_s / ((1 - efficiency) * compute_s)\n"
        "    return max(1, math.ceil(k))\n",
    )
    assert beyond_the_node.check("accumulation_for").outcome == RIGHT
    answers.save(name, f"{head}    return 2\n")
    assert beyond_the_node.check("accumulation_for").outcome == WRONG
    answers.save(name, f"{head}    return 'two'\n")
    assert set(beyond_the_node.check("accumulation_for").faults) == {"form"}
    answers.save(name, f"{head}    return compute_s / (communication_s - communication_s)\n")
    assert beyond_the_node.check("accumulation_for").outcome == RAISED
    answers.save(name, f"{head}    while True:\n        pass\n")
    assert beyond_the_node.check("accumulation_for", patience_s=3).outcome == HUNG
    with pytest.raises(ValueError, match="there are hierarchical_all_reduce, accumulation_for"):
        beyond_the_node.check("accumulation")
