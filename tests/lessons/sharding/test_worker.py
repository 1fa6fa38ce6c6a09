"""Real launches: strategies equal one process, counts the formulas; bugs are named."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from muted_worker import Muted

from labkit.launching import launch
from lessons import sharding
from lessons.sharding.exercises import verdict_of
from lessons.sharding.plan import VARIANTS
from lessons.sharding.worker import trials as links

CPU = torch.device("cpu")
STRATEGIES = {"ddp", "fsdp_grad", "fsdp_full", "fsdp_root"}


def test_two_ranks_equal_one_process_and_each_bug_is_named():
    run = launch(sharding.Trial.small(variants=VARIANTS), progress=False)
    table = sharding.equality(run)
    assert set(table["strategy"]) == STRATEGIES
    assert table["equal"].all(), table
    trials = run.entries("trial")
    trials = trials[(trials["rank"] == 0) & ((trials["variant"] != "right") | (trials["strategy"] == "fsdp_full"))]
    found = {row["variant"]: set(verdict_of(row).faults) for row in trials.to_dict("records")}
    assert found.pop("right") == set()
    assert found == {name: {name} for name in VARIANTS[1:]}
    assert set(sharding.suspects()) == set(found)
    assert trials.set_index("variant").loc["undivided", "update_ratio"] == pytest.approx(run.plan.times, rel=1e-3)


@pytest.mark.slow
def test_three_ranks_equal_one_process():
    table = sharding.equality(launch(sharding.Trial.small(gpus=3, steps=2), progress=False))
    assert len(table) == 4
    assert table["equal"].all(), table


@pytest.mark.slow
def test_collectives_and_tensors_are_the_formulas():
    run = launch(sharding.Strategies.small(repeats=1), progress=False)
    moved = sharding.sent(run)
    assert set(moved["strategy"]) == STRATEGIES and set(moved["load"]) == {"large", "shared out"}
    assert moved["equal"].all(), moved
    calls = moved[moved["collective"] == "all-gather"].set_index(["strategy", "load"])["calls"]
    assert calls["fsdp_full", "shared out"] == 2 * calls["fsdp_full", "large"] == 2 * (2 * run.plan.layers + 1)
    assert (sharding.memory(run)["counted_error"] < 0.01).all()
    table = sharding.strategies(run)
    assert len(table) == len(run.plan.points())
    assert (table["tokens_per_s"] > 0).all() and (table["verdict"] == "no limit known").all()
    assert table.loc[table["strategy"] == "single", "efficiency"].tolist() == [1, 1]


@pytest.mark.slow
def test_every_exchange_sends_as_many_times_the_gradients():
    run = launch(sharding.Accumulation.small(repeats=1, times=(3,)), progress=False)
    table = sharding.accumulation(run)
    assert table["strategy"].tolist() == ["ddp", "fsdp_full"]
    more = table["sent_mib_every"] / table["sent_mib_last"]
    assert more.iloc[0] == pytest.approx(3) and 1 < more.iloc[1] < 3, "FSDP gathers its parameters either way"
    assert sharding.sent(run, ["strategy", "synced"])["equal"].all()


@pytest.mark.slow
def test_every_strategy_has_an_overlap_by_three_methods():
    run = launch(sharding.Profiles.small(micro_batch=2, repeats=2), progress=False)
    table = sharding.overlap(run)
    assert table["strategy"].tolist() == ["ddp", "fsdp_grad", "fsdp_full"]
    assert np.isfinite(table.select_dtypes("number")).all(axis=None), table
    assert (table[["communication_ms", "waits_ms"]] > 0).all(axis=None)
    shares = 1 - table["trace_ms"] / table["communication_ms"]
    assert table["trace_share"].to_list() == pytest.approx(shares)
    counts = run.entries("waits").groupby(["strategy", "rank"]).size()
    assert (counts == 3).all() and len(counts) == 8
    assert not sharding.trace_spans(run, "fsdp_full").empty


@pytest.mark.slow
def test_muted_steps_send_nothing_and_what_follows_is_as_before():
    run = launch(Muted.small(micro_batch=2, strategies=("ddp", "fsdp_grad", "fsdp_full", "fsdp_root")), progress=False)
    rows = run.rows.pivot(index=["strategy", "rank"], columns="entry", values=["calls", "loss", "length"])
    assert len(rows) == 8
    assert (rows["calls"]["muted"] == 0).all(), rows
    assert (rows["calls"]["after"] == rows["calls"]["before"]).all() and (rows["calls"]["before"] > 0).all()
    for what in ("loss", "length"):
        after = rows[what]["after"]
        assert after.to_list() == pytest.approx(rows[what]["before"].to_list(), rel=1e-6)
        assert after.to_list() == pytest.approx([after.iloc[0]] * 8, rel=1e-5), "strategies and ranks are one process"


@pytest.mark.slow
def test_a_timeline_without_a_gpu():
    assert sharding.memory_timeline(launch(sharding.Timeline.small(), progress=False)).empty


def test_collectives_alone_give_what_they_should():
    run = launch(sharding.Links.small(repeats=1, sizes_kib=(16, 64)), progress=False)
    assert len(run.rows) == 2 * 3 * 2 * 4
    assert (run.rows["status"] == "ok").all()
    assert set(run.rows["whole_bytes"]) == {16 * 1024, 64 * 1024}


@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize(("works", "status"), [(True, "ok"), (False, "wrong result")])
def test_a_collective_that_does_nothing_is_a_wrong_result(monkeypatch, collective, works, status):
    def all_reduce(whole, group):
        whole.fill_(3.0 if works else 1.0)

    def all_gather(whole, part, group):
        whole.copy_(torch.cat([part, 2 * part if works else part]))

    def reduce_scatter(part, whole, group):
        part.fill_(3.0 if works else 1.0)

    monkeypatch.setattr(links, "fence", lambda group: None)
    monkeypatch.setattr(links.dist, "all_reduce", all_reduce)
    monkeypatch.setattr(links.dist, "all_gather_into_tensor", all_gather)
    monkeypatch.setattr(links.dist, "reduce_scatter_tensor", reduce_scatter)
    rows = []

    def time(work, before):
        before()
        yield SimpleNamespace(iteration=0, warm_up=False, seconds=1.0, result=work())

    worker = SimpleNamespace(rank=0, device=CPU, time=time, record=lambda **row: rows.append(row))
    links.time_collective(worker, SimpleNamespace(kib=4, ranks=2, collective=collective), None)
    assert [row["status"] for row in rows] == [status]


@pytest.mark.slow
def test_the_reports_own_comparison_has_its_figures_beside():
    run = launch(sharding.AsReported.small(repeats=1, strategies=("single", "ddp")), progress=False)
    assert {(row.precision, row.attention, row.fused) for row in run.plan.points()} == {("float32", "plain", False)}
    table = sharding.reported(run).set_index("strategy")
    assert table["printed_speedup"].to_dict() == {"single": 1.0, "ddp": 1.93}
    assert table.loc["single", "printed_tokens_per_s"] == pytest.approx(5835.8, abs=0.1)
    ratio = table.loc["ddp", "tokens_per_s"] / table.loc["single", "tokens_per_s"]
    assert table.loc["ddp", "speedup"] == pytest.approx(ratio)
