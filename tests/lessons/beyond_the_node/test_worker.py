"""Lab 14's workers over two namespaces: small plans of each kind, right sums, equal weights, counted bytes."""

from __future__ import annotations

import pytest

from labkit import launch
from labkit.cluster import namespaces, session_cache
from labkit.engine.errors import WorkerRaised
from lessons import beyond_the_node as lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not() or "they can be made"),
]


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    session_cache.leave()


@pytest.fixture
def lent(elsewhere, monkeypatch):
    monkeypatch.setenv("LABKIT_CLUSTER", "namespaces")


@pytest.mark.slow
def test_messages_add_up_and_cross_the_link_as_theory_says(lent):
    run = launch(lab.Messages.small(link_mbit=(100,), kib=(64, 512), repeats=2), nodes=2)
    table = lab.messages(run)
    assert set(table["status"]) == {"ok"} and set(table["place"]) == {"inside", "between", "flat", "hierarchical"}
    large = table[table["kib"] == 512].set_index("place")
    over = large["counted_bytes"] / large["link_bytes"]
    assert over.drop("inside").between(1.0, 1.15).all(), over
    # A token bucket lets nothing by sooner, whatever else the machine does.
    least_ms = 8e3 * 512 * 1024 / 100e6
    assert large.loc["between", "call_ms"] > 0.9 * least_ms > large.loc["inside", "call_ms"] / 10
    assert "2 network namespaces of one machine" in run.source


def test_every_strategy_sends_its_bytes(lent):
    plan = lab.Strategies.small(link_mbit=(1000,), repeats=1, warm_ups=1, accumulation=(1, 2), buckets_mb=(0.5,))
    table = lab.strategies(launch(plan, nodes=2))
    assert len(table) == 2 + 3 + 2 and set(table["status"]) == {"ok"}
    rows = table[table["expected_link_mib"] > 0]
    assert (rows["link_mib"] / rows["expected_link_mib"]).between(0.98, 1.15).all(), rows
    assert (table.loc[table["strategy"] == "alone", "link_mib"] < 0.01).all()


@pytest.mark.slow
def test_local_steps_end_with_equal_weights_and_fewer_bytes(lent):
    table = lab.exchanges(launch(lab.LocalSteps.small(steps=8, every=(1, 4)), nodes=2))
    assert (table["apart"] == 0).all()
    assert (table["link_mib"] > 0.98 * table["expected_link_mib"]).all()
    # A busy machine acknowledges late, and TCP sends again what had arrived: 3.0 was seen. Two exchanges more would
    # be 2.
    assert 2.5 < table["times_less"].iloc[1] < 4.4


def test_a_number_of_ranks_that_does_not_divide_the_tensor_is_summed(lent):
    plan = lab.Messages.small(gpus=6, link_mbit=(1000,), kib=(64,), repeats=1, warm_ups=0)
    assert set(lab.messages(launch(plan, nodes=2))["status"]) == {"ok"}


@pytest.mark.slow
def test_a_single_node_is_refused_in_one_sentence(elsewhere):
    with pytest.raises(WorkerRaised, match=r"launch\(plan, nodes=2\)"):
        launch(lab.Messages.small(kib=(64,), repeats=1))
