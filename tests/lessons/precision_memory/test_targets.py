"""Lab 07's targets: what is expected has the same names as what runs reach, and a miss is told."""

import pytest

from labkit.engine.run import replay
from labkit.tables.targets import NOT_RECORDED
from lessons import precision_memory
from lessons.precision_memory.targets import EXPECTED, all_targets, scorecard


@pytest.fixture(scope="module")
def runs():
    return [replay(path) for path in precision_memory.RECORDED.values()]


def test_recorded_runs_reach_what_is_expected(runs):
    card = all_targets(runs).set_index("target")["met"]
    assert set(card.index) == {one.what for one in EXPECTED}
    assert False not in set(card)


def test_without_runs_nothing_is_recorded():
    card = all_targets([])
    assert len(card) == len(EXPECTED) and (card["met"] == NOT_RECORDED).all()


def test_a_peak_that_is_not_explained_is_a_miss(runs, monkeypatch):
    memory = next(run for run in runs if run.plan.name == "memory")
    assert scorecard(memory)["met"].to_list() == [True]
    right = precision_memory.memory(memory)
    monkeypatch.setattr("lessons.precision_memory.targets.memory", lambda _: right.assign(unexplained_share=-0.2))
    assert scorecard(memory)["met"].to_list() == [False]
