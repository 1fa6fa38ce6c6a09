"""Sentences: what is left out, how things are listed, and when a difference counts."""

import pytest

from labkit.story.words import bullets, capitalised, listed, resolved, say


def test_say_leaves_out_what_has_nothing_to_say():
    assert say("One.", None, "", "Two.").data == "One. Two."
    assert say().data == ""


def test_bullets_are_a_list():
    assert bullets("One.", None, "", "Two.").data == "- One.\n- Two."


def test_a_name_begins_a_sentence_and_keeps_its_other_capitals():
    assert (capitalised("our FlashAttention"), capitalised("")) == ("Our FlashAttention", "")


@pytest.mark.parametrize(
    ("items", "said"),
    [((), "none"), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c"), "a, b and c"), ((1, 2), "1 and 2")],
)
def test_listed(items, said):
    assert listed(items) == said
    assert listed(iter(items)) == said


@pytest.mark.parametrize(
    ("a", "b", "spread_a", "spread_b", "differ"),
    [
        (1.0, 2.0, 0.1, 0.1, True),
        (2.0, 1.0, 0.1, 0.1, True),
        (1.0, 1.2, 0.1, 0.15, False),
        (1.0, 1.5, 0.25, 0.25, False),
        (1.0, 1.0, 0.0, 0.0, False),
        (1.0, 1.1, 0.0, 0.0, True),
        (float("nan"), 1.0, 0.1, 0.1, False),
        (1.0, 2.0, float("nan"), 0.1, False),
    ],
)
def test_resolved(a, b, spread_a, spread_b, differ):
    assert resolved(a, b, spread_a, spread_b) is differ
