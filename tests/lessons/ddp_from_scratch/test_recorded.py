"""The recorded runs of lab 10: all that was asked for was sent, and targets are met."""

import pytest

from labkit.engine.recordings import replay
from labkit.node import limits
from labkit.tables.goals import scorecard_of
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.plan import STRATEGIES


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in ddp.RECORDED.items()}


def test_what_was_recorded(runs):
    for positions in (128, 32):
        plan = runs[f"report_{positions}"].plan
        assert (plan.gpus * plan.samples, plan.sequence) == (32, positions)
    for run in runs.values():
        plan = run.plan
        assert (plan.device, plan.size) == ("cuda", "full")
        assert set(run.rows["point"]) == {point.point for point in plan.points()}
        assert set(run.rows["rank"]) == set(range(plan.gpus))
    for name in ("implementations", "buckets", "profiles"):
        assert runs[name].plan.model.parameters == pytest.approx(2.0e9, rel=0.01)
    assert len(runs["implementations"].plan.seeds) >= 3


def test_what_was_sent_is_the_formulas(runs):
    for name in ("implementations", "buckets"):
        table = ddp.overlap(runs[name])
        assert table["equal"].all(), table[~table["equal"]]
    table = ddp.overlap(runs["implementations"]).set_index("strategy")
    assert set(table.index) == set(STRATEGIES)
    assert (table.loc[["naive", "flat"], "before_last_gradient"] == 0).all()
    assert (table.loc[["overlapped", "bucketed", "ddp"], "before_last_gradient"] > 0).all()


def test_sending_takes_time_and_backward_hides_some_of_it(runs):
    table = ddp.implementations(runs["implementations"]).set_index("strategy")
    assert (table["status"] == "ok").all()
    assert table.loc["naive", "longer_ms"] > table.loc["naive", "spread_longer_ms"]
    assert table.loc["bucketed", "step_ms"] < table.loc["naive", "step_ms"]
    assert table.loc["flat", "extra_mib"] > 7000, "a second copy of all gradients"
    run = runs["implementations"]
    limit = limits.bus_bandwidth_limit(run.datasheet, run.plan.gpus, "all-reduce")
    assert ddp.costs(run)["GB/s"].max() < limit, "no link sends faster than its datasheet says"


def test_goals_are_met_or_open(runs):
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if len(card)} == {"implementations", "buckets"}
    assert [row.figure for card in cards.values() for row in card.itertuples() if not row.met] == []


def test_every_suspect_shows_itself(runs):
    said = ddp.diagnose(runs["trial"], {}).data
    assert "differs" not in said and said.count("\n") == len(runs["trial"].plan.variants) - 1
    assert said.count("nothing is wrong with it") == runs["trial"].plan.variants.count("right")
