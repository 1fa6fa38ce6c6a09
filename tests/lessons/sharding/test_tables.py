"""Lab 05's tables on made-up runs of GPUs: rates, shares of the peak, ledgers and targets are as computed by hand."""

import math

import pytest
from made import gpu_node, write_run
from made_sharding import full, made, step_of

from labkit.tables.goals import scorecard_of
from lessons import sharding

FLOP = 5_210_411_520  # a token of GPT-2 Large: 6 · 774 030 080 + 12 · 36 · 1280 · 1024


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    return made(tmp_path_factory.mktemp("scaled") / "run", full(sharding.Strategies, large=48), step_of)


def test_rates_efficiency_and_mfu(scaled):
    table = sharding.strategies(scaled).set_index(["load", "strategy", "ranks"])
    assert len(table) == len(scaled.plan.points())
    alone, ddp, full_ = (table.loc[("large", *key)] for key in (("single", 1), ("ddp", 2), ("fsdp_full", 2)))
    assert alone["tokens_per_s"] == pytest.approx(48 * 1024 / 0.5)
    assert ddp["tokens_per_s"] == pytest.approx(2 * 48 * 1024 / 0.51)
    assert (alone["efficiency"], ddp["efficiency"]) == pytest.approx((1, 500 / 510))
    assert ddp["spread_tokens_per_s"] == pytest.approx(0.005 * ddp["tokens_per_s"])
    assert ddp["mfu"] == pytest.approx(48 * 1024 / 0.51 * FLOP / 989.5e12)
    assert full_["tflops_per_gpu"] == pytest.approx(ddp["tflops_per_gpu"])
    shared = table.loc[("shared out", "ddp", 2)]
    assert shared["efficiency"] == pytest.approx((32 * 500 / 48) / (2 * (16 * 500 / 48 + 50)))
    assert (table["verdict"] == "ok").all()
    assert sharding.strategies(scaled).attrs["small"] is False


def test_a_rate_beyond_the_peak_is_impossible(tmp_path):
    def step(point):
        return 200.0 if (point.strategy, point.load) == ("ddp", "large") else step_of(point)

    table = sharding.strategies(made(tmp_path / "run", full(sharding.Strategies, large=48), step))
    flagged = table[table["verdict"] == "impossible"]
    assert flagged[["strategy", "load"]].to_numpy().tolist() == [["ddp", "large"]]
    assert flagged["mfu"].iloc[0] == pytest.approx(48 * 1024 / 0.2 * FLOP / 989.5e12)


def test_ledgers_of_a_gpu(scaled):
    held, moved = sharding.memory(scaled), sharding.sent(scaled)
    assert held["unexplained_share"].to_list() == pytest.approx([1 - 1 / 1.02] * len(held))
    assert held["counted_error"].max() == 0
    settings = held.loc[held["strategy"] != "single", "strategy"]
    assert len(moved) == (1 + (settings != "ddp")).sum() and moved["equal"].all()
    ddp = held[(held["strategy"] == "ddp") & (held["load"] == "large")].iloc[0]
    parameters = 774_030_080 + 47 * 1280  # padded
    assert ddp["optimizer"] == pytest.approx(12 * parameters / 2**20)
    assert ddp["activations"] > 70 * 1024


def test_accumulation_puts_every_beside_last(tmp_path):
    plan = full(sharding.Accumulation, times=(4, 2))
    step = {"ddp": {"every": 400.0, "last": 380.0}, "fsdp_full": {"every": 500.0, "last": 499.0}}
    table = sharding.accumulation(made(tmp_path / "run", plan, lambda point: step[point.strategy][point.synced]))
    assert table.groupby("micro_batches")["strategy"].agg(list).to_dict() == {2: ["ddp", "fsdp_full"]} | {
        4: ["ddp", "fsdp_full"]
    }
    halved, table = table[table["micro_batches"] == 2], table[table["micro_batches"] == 4]
    ddp, sharded = (halved["sent_mib_every"] / halved["sent_mib_last"]).to_list()
    assert ddp == pytest.approx(2) and 1 < sharded < 1.5, "parameters are gathered either way"
    assert table["step_ms_every"].to_list() == pytest.approx([400, 500])
    assert table["saved_ms"].to_list() == pytest.approx([20, 1])
    assert table["resolved"].tolist() == [True, False]
    gradients = 2 * (774_030_080 + 47 * 1280) / 2**20
    assert table["sent_mib_last"].iloc[0] == pytest.approx(gradients)
    assert table["sent_mib_every"].iloc[0] == pytest.approx(4 * gradients)


def profiled(folder, strategies=("single", "ddp"), moved=10.0, steps=6.0, waits=6.0):
    """Write a profiled step: 6 ms of `moved` are exposed, and computing takes 4 ms longer beside it."""
    plan = full(sharding.Profiles, strategies=strategies)
    rows = []
    for point in plan.points():
        talks = point.strategy != "single"
        sent, exposed, compute = (moved, 6.0, 104.0) if talks else (0.0, 0.0, 100.0)
        account = {"entry": "profile", "window_ms": compute + exposed + 2, "compute_ms": compute, "idle_ms": 2.0}
        account |= {"communication_ms": sent, "exposed_ms": exposed, "hidden_ms": sent - exposed}
        timed = {"muted": 90.0, "gradients": 90.0 + talks * steps, "waits": talks * waits}
        for rank in range(2):
            rows.append((rank, vars(point) | account | {"kernels": 9.0, "communication_kernels": 1.0}))
            rows += [
                (
                    rank,
                    vars(point) | {"entry": name, "iteration": 1, "waited_ms" if name == "waits" else f"{name}_ms": ms},
                )
                for name, ms in timed.items()
            ]
    return write_run(folder, plan, gpu_node(2), rows)


def test_overlap_by_three_methods(tmp_path):
    table = sharding.overlap(profiled(tmp_path / "agree"))
    assert table.loc[0, ["trace_share", "steps_share", "waits_share"]].to_list() == pytest.approx([0.4] * 3)
    assert table.loc[0, ["slowed_ms", "idle_ms", "apart_points"]].to_list() == pytest.approx([4, 0, 0], abs=1e-9)
    table = sharding.overlap(profiled(tmp_path / "apart", steps=8.0, waits=5.0))
    assert table.loc[0, ["steps_ms", "waits_ms"]].to_list() == pytest.approx([8, 5])
    assert table.loc[0, "apart_points"] == pytest.approx(30)
    unknown = sharding.overlap(profiled(tmp_path / "lone", strategies=("ddp",)))
    assert math.isnan(unknown.loc[0, "slowed_ms"])
    assert sharding.overlap(profiled(tmp_path / "none", strategies=("single",))).empty


def test_equality_is_the_worst_ranks_and_symptoms_are_rank_0s(tmp_path):
    plan = full(sharding.Trial, strategies=("ddp", "fsdp_full"), variants=("right", "undivided"))
    rows = []
    for point in plan.points():
        for rank in range(2):
            found = {"entry": "trial", "loss_error": 1e-6, "update_error": 2e-3 * rank * (point.strategy == "ddp")}
            found |= {"update_ratio": 1.0 + rank, "largest_share": 0.3, "exchanges": 1.0}
            rows.append((rank, vars(point) | found))
    run = write_run(tmp_path / "run", plan, gpu_node(2), rows)
    assert sharding.equality(run)["equal"].tolist() == [False, True]
    table = sharding.symptoms(run)
    assert table["variant"].tolist() == ["right", "right", "undivided"]
    assert table["update_ratio"].tolist() == [1, 1, 1] and table["micro_batches"].tolist() == [3, 3, 3]
    broken = write_run(tmp_path / "broken", full(sharding.Trial, variants=("undivided",)), gpu_node(2), rows[-2:])
    assert scorecard_of(broken).empty, "where no variant is right, no error is to be small"
    card = scorecard_of(run)
    assert card["measured"].tolist() == [2000] and not card["met"].any(), "a missed target stays in the card"


def test_measures(tmp_path, scaled):
    met = scorecard_of(scaled).set_index("figure")["met"]
    assert met.all() and met.index.str.contains("one GPU's rate kept on 2 GPUs").sum() == 2

    def close(point):
        return step_of(point) + 15.2 * (point.ranks > 1)

    near = made(tmp_path / "near", full(sharding.Strategies, large=48), close)
    assert scorecard_of(near)["met"].tolist() == ["open", "open", True], "0.952 ± 0.01 is not above 0.95"

    def slow(point):
        return step_of(point) + 30 * (point.strategy == "fsdp_full")

    run = made(tmp_path / "slow", full(sharding.Strategies, large=48), slow, factor=1.2, counted=1)
    assert not sharding.sent(run)["equal"].any()
    card = scorecard_of(run)
    assert card["met"].tolist() == [True, False, False], card
    assert card["measured"].tolist()[1:] == pytest.approx([500 / 540, 100 / 6], abs=1e-3)
    card = scorecard_of(profiled(tmp_path / "apart", waits=5.0))
    assert (card["measured"].tolist(), card["met"].tolist()) == ([10], [False])
