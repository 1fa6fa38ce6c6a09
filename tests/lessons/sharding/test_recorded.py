"""The recorded runs of lab 05: what their tables, scorecards and rules have to show."""

import numpy as np
import pandas as pd
import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.gpt import gpt
from lessons import sharding


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in sharding.RECORDED.items()}


def test_all_points_of_the_published_model_are_there(runs):
    for name, run in runs.items():
        name = "trial" if name == "suspects" else name
        assert (run.plan.size, run.plan.device, run.plan.name) == ("full", "cuda", name)
        assert {point.point for point in run.plan.points()} <= set(run.rows["point"]), name
    plan = runs["strategies"].plan
    assert gpt(plan.layers, plan.hidden, plan.words, plan.sequence).parameters == 774_030_080


def test_strategies_scale_below_the_peak(runs):
    table = sharding.strategies(runs["strategies"])
    assert (table["verdict"] == "ok").all() and (table["status"] == "ok").all()
    assert (table["efficiency"] < 1.05).all()


def test_ledgers_explain_within_a_tenth(runs):
    assert sharding.memory(runs["strategies"])["counted_error"].max() < 0.01
    assert sharding.sent(runs["strategies"])["equal"].all()


def test_accumulation_saves_bytes(runs):
    table = sharding.accumulation(runs["accumulation"])
    ddp = table[table["strategy"] == "ddp"]
    assert (ddp["sent_mib_every"] / ddp["sent_mib_last"]).to_list() == pytest.approx([2, 4])
    full = table[table["strategy"] == "fsdp_full"]
    assert (full["sent_mib_last"] / full["sent_mib_every"]).to_list() == pytest.approx([0.83, 0.74], abs=0.005)
    assert sharding.sent(runs["accumulation"], ["strategy", "synced", "micro_batches"])["equal"].all()


def test_overlap_has_all_methods(runs):
    table = sharding.overlap(runs["profiles"])
    assert np.isfinite(table.select_dtypes("number")).all(axis=None)
    assert table["trace_share"].between(0, 1).all()


def test_collectives_alone_are_right_and_possible(runs):
    table = sharding.links(runs["links"])
    assert (table["status"] == "ok").all() and (table["verdict"] == "ok").all()
    assert set(table["collective"]) == {"all-reduce", "all-gather", "reduce-scatter"}


def test_scorecards(runs):
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    shown = {name for name, card in cards.items() if len(card)}
    assert shown == {"strategies", "profiles", "trial"}
    card = pd.concat([cards[name] for name in shown])
    assert card["measured"].notna().all() and set(card["lab"]) == {"sharding"}
    met = card.set_index("figure")["met"]
    assert met[met.index.str.contains("unexplained|largest error")].all(), met
    assert cards["profiles"]["met"].tolist() == (sharding.overlap(runs["profiles"])["apart_points"] <= 3).tolist()
