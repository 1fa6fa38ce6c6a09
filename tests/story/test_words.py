"""Sentences: what is left out, how things are listed, and when a difference counts."""

import pandas as pd
import pytest

from labkit.story.words import SMALL_NOTE, beside, bullets, capitalised, listed, resolved, say, with_table


def test_say_leaves_out_what_has_nothing_to_say():
    assert say("One.", None, "", "Two.").data == "One. Two."
    assert say().data == ""
    assert say("One.", small=True).data == f"One.\n\n{SMALL_NOTE}"


def test_bullets_are_a_list_also_under_a_heading():
    assert bullets("One.", None, "", "Two.").data == "- One.\n- Two."
    assert bullets("One.", small=True).data == f"- One.\n\n{SMALL_NOTE}"
    assert beside(bullets("One."), say("Two.")).data == "**Here.**\n\n- One.\n\n**Recorded.** Two."


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


def test_beside_names_whose_sentence_it_is():
    assert beside(say("Fast."), say("Slow.")).data == "**Here.** Fast.\n\n**Recorded.** Slow."


def test_a_table_stands_in_a_paragraph_of_its_own():
    table = with_table(pd.DataFrame({"way": ["direct"], "ms": [1234.5]}), say("Fast."))
    assert table.data.splitlines() == ["| way | ms |", "| --- | --- |", "| direct | 1 234 |", "", "Fast."]
    assert "**Here.**\n\n| way" in beside(table, say("Slow.")).data, "the name is no head of a column"
