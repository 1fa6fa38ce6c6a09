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
    assert ddp_fsdp.sent(runs["strategies"])["equal"].all()


def test_no_rate_is_above_that_of_ranks_alone(runs):
    table = ddp_fsdp.throughput(runs["strategies"])
    assert table["efficiency"].between(0.8, 1.02).all()


def test_zero_is_measured_stage_by_stage(runs):
    table = ddp_fsdp.zero(*(runs[name] for name in ddp_fsdp.ZERO_RUNS))
    assert table.notna().all(axis=None), "each stage has its memory"
    rows = table.set_index(["strategy", "limits"])
    assert rows["link_mib"]["ddp", ""] == pytest.approx(4 * 109_483_778 / 2**20, rel=1e-3), "of one batch, not of two"


def test_the_formula_explains_the_peaks_per_sample(runs):
    table = ddp_fsdp.per_sample(runs["asreported"])
    assert (table["peak_mb"] / table["formula_mb"] - 1).abs().max() < 0.05


def test_targets_are_met(runs):
    """Those of unexplained memory and of errors beside one process are among them."""
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if len(card)} == {"strategies", "knobs", "trial"}
    assert [row.figure for card in cards.values() for row in card.itertuples() if not row.met] == []


def test_in_one_minute(runs):
    lines = ddp_fsdp.in_one_minute(runs, runs).data.splitlines()
    shown = [line.split(" | ")[1].removesuffix(" |") for line in lines[2:]]
    assert shown[1:3] == ["full sharding saves 7.8 % of DDP's memory", "FSDP full sends 1.4× DDP's bytes"]
    assert shown[4:] == ["up to 5.8× as fast"]
