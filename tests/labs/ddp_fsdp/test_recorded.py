"""The recorded runs of lab 04: ledgers explain their peaks, formulas their traffic, and the lab's targets are met."""

import pytest
from figures import drawn

from labkit.engine.run import replay
from labkit.labs import ddp_fsdp
from labkit.tables.published import published

SHARDED = {"fsdp_grad", "fsdp_full", "fsdp_root"}


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in ddp_fsdp.RECORDED.items()}


def test_what_was_recorded(runs):
    assert set(runs) >= {"strategies", "knobs", "trial", "zero"}
    for run in runs.values():
        plan = run.plan
        assert (plan.device, plan.size) == ("cuda", "full")
        assert (plan.layers, plan.hidden, plan.vocabulary, plan.gpus >= 2) == (12, 768, 30522, True)
        assert (run.rows["status"] == "ok").all()
        assert set(run.rows["point"]) == {point.point for point in plan.points()}
        assert set(run.rows["rank"]) == set(range(plan.gpus))
    assert len(runs["strategies"].plan.seeds) >= 3


def test_ledgers_explain_every_peak(runs):
    table = ddp_fsdp.memory(runs["strategies"])
    assert len(table) == len(list(runs["strategies"].plan.knobs()))
    assert table["peak"].notna().all()
    worst = table.loc[table["unexplained_share"].abs().idxmax()]
    assert abs(worst["unexplained_share"]) < 0.1, worst.to_dict()
    assert (table["counted_error"] < 0.01).all()
    held = table[table["batch"] == 64].set_index("strategy")
    assert (held["peak"].idxmax(), held["peak"].idxmin()) == ("ddp", "fsdp_full")
    assert held.loc["ddp", "activations"] > 0.5 * held.loc["ddp", "predicted"], "which nobody shards"


def test_traffic_is_the_formulas(runs):
    table = ddp_fsdp.sent(runs["strategies"])
    assert set(table["strategy"]) == {"ddp"} | SHARDED
    assert table["equal"].all(), table[~table["equal"]]


def test_every_strategy_trained_as_one_process(runs):
    table = ddp_fsdp.equality(runs["trial"])
    assert set(table["strategy"]) == {"ddp"} | SHARDED
    assert table["equal"].all(), table


def test_rates_are_near_those_of_ranks_alone(runs):
    table = ddp_fsdp.throughput(runs["strategies"])
    assert (table.loc[table["strategy"] == "ddp", "efficiency"] > 0.95).all()
    assert table["efficiency"].between(0.8, 1.02).all()
    rates = table.pivot_table(index="strategy", columns="batch", values="samples_per_s")
    assert (rates[64] > rates[16]).all()
    apart = ddp_fsdp.differences(table)
    assert apart["percent"].abs().max() < 20
    assert apart["resolved"].any()


def test_knobs_reach_four_times_the_first_rate(runs):
    table = ddp_fsdp.ladder(runs["knobs"]).set_index("knob")
    assert table["times_first"].max() > 4
    assert table.loc["TF32", "times_previous"] > 1.5
    assert table.loc["bfloat16 autocast", "times_previous"] > 1.2


def test_zero_sends_more_than_fsdp_at_the_same_sharding(runs):
    table = ddp_fsdp.zero(runs["zero"]).set_index("strategy")
    assert table.drop(columns="peak_mib").notna().all(axis=None)
    assert table.loc["zero2", "link_mib"] > 1.4 * table.loc["fsdp_grad", "link_mib"]
    assert table.loc["zero1", "peak_mib"] < table.loc["ddp", "peak_mib"]
    assert table.loc["zero3", "calls"] > table.loc["fsdp_full", "calls"]


def test_targets_are_met(runs):
    cards = {name: ddp_fsdp.scorecard(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if card.empty} == {"zero"}
    assert [row.target for card in cards.values() for row in card.itertuples() if not row.met] == []


def test_every_chart_and_sentence(runs):
    held, rates = ddp_fsdp.memory(runs["strategies"]), ddp_fsdp.throughput(runs["strategies"])
    apart, ladder = ddp_fsdp.differences(rates), ddp_fsdp.ladder(runs["knobs"])
    printed = published("ddp_fsdp")
    drawn(ddp_fsdp.ledger_chart(held, held, guess=9.0), 2)
    drawn(ddp_fsdp.strategies_chart(rates, rates, published=printed), 2)
    drawn(ddp_fsdp.differences_chart(apart, printed=ddp_fsdp.printed_differences(printed)), 1)
    drawn(ddp_fsdp.waterfall_chart(ladder, ladder), 2)
    drawn(ddp_fsdp.zero_chart(ddp_fsdp.zero(runs["zero"])), 3)
    assert "trained as one process does" in ddp_fsdp.explain_equality(ddp_fsdp.equality(runs["trial"])).data
    assert "as the formulas say" in ddp_fsdp.explain_sent(ddp_fsdp.sent(runs["strategies"])).data
    assert "Full sharding saves" in ddp_fsdp.explain_memory(held).data
    assert "DDP, batch 64" in ddp_fsdp.explain_strategies(rates, apart).data
    assert "the first configuration's rate" in ddp_fsdp.explain_knobs(ladder).data
    assert "it all-reduces gradients" in ddp_fsdp.explain_zero(ddp_fsdp.zero(runs["zero"])).data
