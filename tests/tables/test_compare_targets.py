"""The targets of a recorded run beside those of this node."""

from labkit.tables.targets import Target, card, compare_targets

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
