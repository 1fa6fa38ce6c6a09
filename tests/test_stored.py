"""What JSON holds of a dataclass comes back in the types that it declares, and anything else is one sentence."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from labkit.stored import restored


@dataclass(frozen=True)
class Inner:
    name: str
    rate: float | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    ratio: float
    on: bool = False
    pairs: tuple[tuple[int, str], ...] = ()
    inner: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = field(default_factory=dict)
    anything: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


WHOLE = Outer(3, 1, True, ((0, "0-3"), (1, "4-7")), (Inner("a", 2.5), Inner("b")), {"c": Inner("c")}, {"d": [1]}, ["e"])


def test_what_was_written_comes_back():
    assert restored(Outer, json.loads(json.dumps(asdict(WHOLE)))) == WHOLE
    assert restored(Outer, asdict(WHOLE)) == WHOLE, "before it was written, too"
    assert restored(Outer, {"count": 1, "ratio": 0.5, "colour": "red"}) == Outer(1, 0.5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": "3"}, "a Outer whose 'count' is '3'"),
        ({"count": True}, "'count' is 'True'"),
        ({"count": None}, "'count' is 'None'"),
        ({"ratio": "fast"}, "'ratio' is 'fast'"),
        ({"on": 1}, "'on' is '1'"),
        ({"pairs": [[0]]}, "'pairs' is"),
        ({"pairs": [["0", "0-3"]]}, "'pairs' is '0'"),
        ({"inner": [{"rate": 1.0}]}, "a Inner without 'name'"),
        ({"inner": {"name": "a"}}, "'inner' is"),
        ({"by_name": {"c": 3}}, "a Inner is a JSON object, not '3'"),
        ({"words": "e"}, "'words' is 'e'"),
    ],
)
def test_anything_else_is_one_sentence_that_names_class_and_field(change, says):
    with pytest.raises(ValueError, match=says):
        restored(Outer, json.loads(json.dumps(asdict(WHOLE) | change)))


@pytest.mark.parametrize("stored", [None, 3, [], "text"])
def test_what_is_no_object_is_refused(stored):
    with pytest.raises(ValueError, match="a Outer is a JSON object"):
        restored(Outer, stored)
