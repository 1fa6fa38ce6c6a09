"""Lab 07's measures: the recorded runs reach every goal, and a peak that the ledger does not explain is a miss."""

import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.tables.measures import measures_of
from lessons import precision_memory


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in precision_memory.RECORDED.items()}


def test_recorded_runs_reach_every_goal(runs):
    cards = [scorecard_of(run).set_index("figure")["met"] for run in runs.values()]
    met = {name: reached for card in cards for name, reached in card.items()}
    assert met == {one.name: True for one in measures_of("precision_memory") if one.comparison}


def test_a_peak_that_is_not_explained_is_a_miss(runs, monkeypatch):
    wrong = "lessons.precision_memory.tables.with_unexplained"
    monkeypatch.setattr(wrong, lambda table: table.assign(unexplained_share=-0.2))
    assert scorecard_of(runs["memory"])["met"].to_list() == [False]
