"""A card's figures: none is rounded onto its goal, and one whose spread holds the goal is open."""

import pytest

from labkit.tables.targets import OPEN, Target, card


@pytest.mark.parametrize(
    ("measured", "shown"), [(0.9498, 0.9498), (0.94996, 0.94996), (0.95, 0.95), (0.12345, 0.123), (0.95123, 0.951)]
)
def test_a_figure_is_not_rounded_onto_its_goal(measured, shown):
    rows = card("lab", [Target("share", measured, "≥", 0.95, spread=0.02)])
    assert rows["measured"].tolist() == [shown]


def test_a_goal_inside_the_spread_is_open_whatever_the_figure_shows():
    targets = [Target("share", 0.9498, "≥", 0.95, spread=0.024), Target("share alone", 0.9498, "≥", 0.95)]
    assert card("lab", targets)["met"].tolist() == [OPEN, False]
