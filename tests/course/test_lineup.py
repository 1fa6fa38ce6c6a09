"""Suspects of a "find the bug", and choices of a question: all of them, in an order that says nothing."""

import importlib
import re

import pytest

from labkit.course.lineup import neutral_order, why
from lessons import broadcast, pipeline

CHOICES = [("more links", "Yes: <4> links."), ("faster links", "Both use them."), ("smaller chunks", "No: as many.")]


@pytest.mark.parametrize("lab", [broadcast, pipeline], ids=["broadcast", "pipeline"])
def test_every_bug_stands_there_in_another_order_than_the_file_has_it(lab):
    names = [name.removeprefix("bugs.") for name in lab.suspects()]
    known = [*importlib.import_module(f"{lab.__name__}.exercises").SYMPTOMS]
    assert sorted(names) == sorted(known)
    assert names not in (known, known[::-1], sorted(known))


def test_every_choice_opens_to_its_answer_and_the_first_in_the_code_is_the_right_one():
    page = why("Why is it faster?", *CHOICES).data
    opened = re.findall(r"<summary>(.*?)</summary><p[^>]*>(.*?)</p></details>", page)
    assert [choice for choice, _ in opened] == list(neutral_order(choice for choice, _ in CHOICES))
    assert dict(opened) == {
        "more links": "✔ Yes: &lt;4&gt; links.",
        "faster links": "✘ Both use them.",
        "smaller chunks": "✘ No: as many.",
    }


def test_the_order_does_not_depend_on_which_is_right():
    turned = [CHOICES[at:] + CHOICES[:at] for at in range(3)]
    orders = {tuple(re.findall(r"<summary>(.*?)</summary>", why("Why?", *choices).data)) for choices in turned}
    assert len(orders) == 1
