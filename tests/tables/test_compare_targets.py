"""The targets of a recorded run beside those of this node, with a word on whether the two figures are comparable."""

import pytest

from labkit.provenance import of_source
from labkit.tables.targets import CODE, GPU, HOST, Target, card, compare_targets, join_cards

RECORDED = card("lab", [Target("speed", 3.0, "≥", 2.0, "GB/s"), Target("error", 0.2, "≤", 0.1)])


def test_each_target_has_both_figures_and_both_verdicts():
    here = card("lab", [Target("speed", 1.0, "≥", 2.0, "GB/s"), Target("only here", 1.0, "=", 1.0)])
    table = compare_targets(RECORDED, here).set_index("target")
    assert table.loc["speed", ["recorded", "met_recorded", "here", "met_here"]].tolist() == [3.0, True, 1.0, False]
    assert table.loc["error", "met_here"] == "not measured"
    assert table.loc["only here", ["met_recorded", "met_here"]].tolist() == ["not recorded", True]


def test_a_node_that_measured_nothing_shows_the_recorded_figures():
    table = compare_targets(RECORDED, RECORDED.iloc[:0])
    assert table["recorded"].tolist() == [3.0, 0.2]
    assert set(table["met_here"]) == {"not measured"}


H200 = {"processor": "NVIDIA H200", "driver": "580.1", "torch": "2.11.0", "enqueue_us": 7.3, "throttled_percent": 0.0}
SLOW_HOST = H200 | {"enqueue_us": 14.2}


def cards(conditions: dict, measured: float = 3.0):
    """Return the card of a run under these conditions: a measure of the GPU, one of the host, and a counted one."""
    targets = {"rate": GPU, "step": HOST, "errors": CODE}
    table = card("lab", [Target(what, measured, "≥", 2.0, depends_on=kind) for what, kind in targets.items()])
    return of_source(table, "a run", of_targets={("lab", what): (kind, conditions) for what, kind in targets.items()})


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (H200, {"rate": "comparable", "step": "comparable", "errors": "comparable"}),
        (SLOW_HOST, {"rate": "comparable", "step": "enqueue", "errors": "comparable"}),
        (H200 | {"throttled_percent": 60.0}, {"rate": "throttled", "step": "throttled", "errors": "comparable"}),
        (H200 | {"torch": "2.13.0"}, {"rate": "torch is 2.13.0 in this run and 2.11.0 in the recorded run"}),
        (SLOW_HOST | {"processor": "NVIDIA A100"}, {"rate": "NVIDIA A100 in this run and NVIDIA H200"}),
        ({}, {"rate": "not known", "errors": "comparable"}),
        ({"processor": "NVIDIA H200", "driver": "580.1"}, {"rate": "not known"}),
    ],
)
def test_a_figure_is_comparable_as_far_as_it_depends_on_what_differs(conditions, words):
    table = compare_targets(cards(H200), cards(conditions)).set_index("target")["conditions"]
    for target, word in words.items():
        assert word in table[target]


def test_what_was_not_measured_here_is_not_judged():
    assert set(compare_targets(cards(H200), card("lab", []))["conditions"]) == {"–"}


def test_joined_cards_know_the_conditions_of_each():
    other = card("other", [Target("share", 1.0)])
    joined = join_cards(cards(H200), other, card("empty", []))
    assert joined["target"].tolist() == ["rate", "step", "errors", "share"]
    table = compare_targets(joined, cards(SLOW_HOST)).set_index("target")["conditions"]
    assert "enqueue" in table["step"]
    assert table["share"] == "–"
