"""The line-up of a "find the bug": all suspects, in an order that says nothing."""

import importlib

import pytest

from labkit.course.lineup import lined_up
from lessons import broadcast, pipeline


def test_the_order_does_not_depend_on_how_they_are_given():
    names = ("one", "two", "three", "four")
    assert set(lined_up(names)) == set(names)
    assert lined_up(names) == lined_up(reversed(names))


@pytest.mark.parametrize("lab", [broadcast, pipeline], ids=["broadcast", "pipeline"])
def test_every_bug_stands_there_in_another_order_than_the_file_has_it(lab):
    names = [name.removeprefix("bugs.") for name in lab.suspects()]
    known = [*importlib.import_module(f"{lab.__name__}.bugs").SYMPTOMS]
    assert sorted(names) == sorted(known)
    assert names not in (known, known[::-1], sorted(known))
