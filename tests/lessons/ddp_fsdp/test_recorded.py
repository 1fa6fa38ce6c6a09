"""The recorded runs of lab 04: ledgers explain their peaks, formulas their traffic, and the lab's targets are met."""

import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from lessons import ddp_fsdp


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in ddp_fsdp.RECORDED.items()}


def test_what_was_recorded(runs):
    assert set(runs) >= {"strategies", "knobs", "trial", "asreported", *ddp_fsdp.ZERO_RUNS}
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
    assert (table["counted_error"] < 0.01).all()
    held = table[table["batch"] == 64].set_index("strategy")
    assert (held["peak"].idxmax(), held["peak"].idxmin()) == ("ddp", "fsdp_full")
    assert held.loc["ddp", "activations"] > 0.5 * held.loc["ddp", "predicted"], "which nobody shards"


def test_rates_are_near_those_of_ranks_alone(runs):
    table = ddp_fsdp.throughput(runs["strategies"])
    assert (table.loc[table["strategy"] == "ddp", "efficiency"] > 0.95).all()
    assert table["efficiency"].between(0.8, 1.02).all()
    rates = table.pivot_table(index="strategy", columns="batch", values="samples_per_s")
    assert (rates[64] > rates[16]).all()
    apart = ddp_fsdp.compared(runs["strategies"])
    assert apart["percent"].abs().max() < 20
    assert apart["resolved"].any()


def test_knobs_reach_four_times_the_first_rate(runs):
    table = ddp_fsdp.ladder(runs["knobs"]).set_index("knob")
    assert table["times_first"].max() > 4
    assert table.loc["TF32", "times_previous"] > 1.5
    assert table.loc["bfloat16 autocast", "times_previous"] > 1.2


def test_zero_is_measured_stage_by_stage(runs):
    table = ddp_fsdp.zero(*(runs[name] for name in ddp_fsdp.ZERO_RUNS))
    assert table["strategy"].tolist() == ["ddp", "fsdp_grad", "fsdp_full", "zero1", "zero2", "zero3", "zero3"]
    assert table["limits"].tolist() == [""] * 5 + ["default", "zero"]
    assert table.notna().all(axis=None), "each stage has its memory"
    rows = table.set_index(["strategy", "limits"])
    assert rows["link_mib"]["zero2", ""] > 1.4 * rows["link_mib"]["fsdp_grad", ""]
    assert rows["link_mib"]["ddp", ""] == pytest.approx(4 * 109_483_778 / 2**20, rel=1e-3), "of one batch, not of two"
    assert rows["peak_mib"]["zero1", ""] < rows["peak_mib"]["ddp", ""]
    assert rows["calls"]["zero3", "zero"] > rows["calls"]["zero3", "default"] > rows["calls"]["fsdp_full", ""]
    assert rows["samples_per_s"]["zero3", "zero"] < rows["samples_per_s"]["zero3", "default"]


def test_dropout_and_plain_attention_need_more_than_the_reports(runs):
    table = ddp_fsdp.per_sample(runs["asreported"]).set_index(["attention", "dropout"])
    assert (table["peak_mb"] / table["formula_mb"] - 1).abs().max() < 0.05, "the formula explains the peaks"
    without, with_dropout = table["peak_mb"]["plain", 0.0], table["peak_mb"]["plain", 0.1]
    assert all(without < printed < with_dropout for printed in ddp_fsdp.printed_per_sample().values())


def test_targets_are_met(runs):
    """Those of unexplained memory, of collectives and of errors beside one process are among them."""
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if len(card)} == {"strategies", "knobs", "trial"}
    assert [row.target for card in cards.values() for row in card.itertuples() if not row.met] == []


def test_in_one_minute(runs):
    lines = ddp_fsdp.in_one_minute(runs, runs).data.splitlines()
    assert lines[0] == "| rule | here | recorded |" and len(lines) == 2 + 5
    shown = [line.split(" | ")[1] for line in lines[2:]]
    assert shown == [line.split(" | ")[2].removesuffix(" |") for line in lines[2:]]
    assert shown[1:3] == ["full sharding saves 7.8 % of DDP's memory", "FSDP full sends 1.4× DDP's bytes"]
    assert shown[4:] == ["up to 5.8× as fast"]
