"""Verdicts: few numbers, more in a table that is folded; and the rules at the end of a page."""

import pandas as pd
import pytest

from labkit.story.verdict import numbers_in, one_minute, verdict


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Fastest: **scatter + all-gather**, 20.5 ms, 1.22× the limit", ["20.5", "1.22"]),
        ("On an H200 with float32 and 1 967 tokens, 8–64 chunks", ["1 967", "8", "64"]),
        ("Nothing is faster.", []),
        ("3 % of 65 536 and 0.0217, then 5.", ["3", "65 536", "0.0217", "5"]),
    ],
)
def test_what_counts_as_a_number(text, numbers):
    assert numbers_in(text) == numbers


def test_a_verdict_has_at_most_three_numbers():
    assert verdict("1 and 2 and 3.").data == "1 and 2 and 3."
    with pytest.raises(ValueError, match="at most 3 numbers, this one 1, 2, 3, 4"):
        verdict("1 and 2 and 3 and 4.")


def test_more_figures_are_a_table_that_opens():
    text = verdict(
        "Pinning gains 10×.", pd.DataFrame({"order": ["path first"], "gain": [9.876]}), summary="Orders"
    ).data
    sentence, opened = text.split("\n\n", 1)
    assert sentence == "Pinning gains 10×."
    assert opened.startswith("<details><summary>Orders</summary>\n\n| order | gain |\n")
    assert "| path first | 9.88 |\n\n</details>" in opened


def test_rules_stand_beside_what_each_measurement_shows():
    rules = {"Use every host link": lambda gain: f"{gain}×", "Pin what a GPU pulls": lambda gain: None}
    assert one_minute(rules, here=0.9, on_the_recorded_node=3.8).data.splitlines() == [
        "| rule | here | on the recorded node |",
        "| --- | --- | --- |",
        "| Use every host link | 0.9× | 3.8× |",
        "| Pin what a GPU pulls | not measured | not measured |",
    ]


def test_recorded_runs_that_stand_for_those_of_this_machine_are_shown_once():
    rules = {"Use every host link": lambda gain: f"{gain}×"}
    assert one_minute(rules, here=3.8, recorded=3.8).data.splitlines()[0] == "| rule | recorded |"
    assert one_minute(rules, here=0.9, recorded=3.8).data.splitlines()[0] == "| rule | here | recorded |"
