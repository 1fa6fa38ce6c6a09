"""The recorded runs of lab 14: whole, over a link of known rates, with the bytes and lines of theory."""

import pandas as pd
import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from lessons import beyond_the_node as lab


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in lab.RECORDED.items()}


def test_what_was_recorded(runs):
    assert set(runs) == {"messages", "strategies", "localsteps"}
    for run in runs.values():
        assert (run.plan.device, run.plan.gpus, run.node_count) == ("cpu", 4, 2)
        assert (run.rows["status"] == "ok").all()
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}
        assert "2 network namespaces of one machine" in run.source and not run.hosts


def test_lines_between_nodes_are_the_rates_that_were_set(runs):
    lines = lab.two_lines(runs["messages"])
    shaped = lines[lines["link_mbit"] > 0]
    assert set(shaped["link_mbit"]) == {1000, 300, 100}
    assert shaped["share_of_rate"].between(0.9, 1.0).all(), shaped


def test_bytes_over_the_link_are_theorys(runs):
    table = lab.strategies(runs["strategies"], lab.two_lines(runs["messages"]))
    rows = table[table["expected_link_mib"] > 0]
    assert (rows["link_mib"] / rows["expected_link_mib"]).between(1.0, 1.1).all(), rows
    exchanges = lab.exchanges(runs["localsteps"])
    assert (exchanges["link_mib"] / exchanges["expected_link_mib"]).between(1.0, 1.1).all()
    assert (exchanges["apart"] == 0).all()


def test_the_verdicts_of_the_targets(runs):
    card = pd.concat(map(scorecard_of, runs.values()))
    assert len(card) == 5
    assert card["met"].map(lambda met: met in (True, "open")).all(), card
