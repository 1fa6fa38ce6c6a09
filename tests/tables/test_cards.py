"""A card's figures: none is rounded onto its goal, and one whose spread holds the goal is open."""

import pytest

from labkit.tables.goals import OPEN, goals_table
from labkit.tables.measures import Measure, Measured

SHARE = Measure(name="share", unit="", plan="sweep", measured=lambda run: None, comparison="≥", goal=0.95)


def reached(value, spread=0.0):
    return SHARE, Measured(value, value - spread, value + spread, 7, "")


@pytest.mark.parametrize(
    ("measured", "shown"), [(0.9498, 0.9498), (0.94996, 0.94996), (0.95, 0.95), (0.12345, 0.123), (0.95123, 0.951)]
)
def test_a_figure_is_not_rounded_onto_its_goal(measured, shown):
    assert goals_table("lab", [reached(measured, 0.02)])["measured"].tolist() == [shown]


def test_a_goal_inside_the_spread_is_open_whatever_the_figure_shows():
    table = goals_table("lab", [reached(0.9498, 0.024), reached(0.9498)])
    assert table["met"].tolist() == [OPEN, False]
