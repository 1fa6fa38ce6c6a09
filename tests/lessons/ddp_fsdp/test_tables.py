"""Rows of made-up runs → lab 04's tables: rates, differences, ladders, both ledgers, ZeRO, targets."""

import re

import nbformat
import pytest
from made import gpu_node, write_run
from made_ddp_fsdp import MEMORY, knobs_run, strategies_run, zero_run

from labkit.provenance import fact
from labkit.repository import REPOSITORY
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import MIB
from lessons import ddp_fsdp
from lessons.ddp_fsdp.plan import AsReported, Trial


def test_throughput_is_of_the_slowest_rank_and_beside_ranks_alone(tmp_path):
    run = strategies_run(tmp_path / "run")
    table = ddp_fsdp.throughput(run).set_index(["strategy", "batch"])
    ddp = table.loc[("ddp", 64)]
    assert ddp["step_ms"] == pytest.approx(100.0)
    assert ddp["samples_per_s"] == pytest.approx(640.0)
    assert ddp["efficiency"] == pytest.approx(0.95)
    assert ddp["spread_samples_per_s"] == pytest.approx(640 * ddp["spread_step_ms"] / 100)
    assert (ddp["count"], ddp["ranks"]) == (6, 4)
    assert table.loc[("ddp", 16), "samples_per_s"] == pytest.approx(160.0)
    without = ddp_fsdp.throughput(strategies_run(tmp_path / "two", strategies=("ddp",)))
    assert without["efficiency"].isna().all()


def test_rates_are_compared_with_ddps_and_their_spreads(tmp_path):
    table = ddp_fsdp.compared(strategies_run(tmp_path / "run"))
    first = table[table["batch"] == 64].set_index("strategy")
    sharded = first.loc[["fsdp_grad", "fsdp_full", "fsdp_root"]]
    assert sharded["percent"].tolist() == pytest.approx([100 * (100 / ms - 1) for ms in (104, 101, 250)])
    assert sharded["resolved"].tolist() == [True, False, True]
    assert sharded["spread_percent"].between(1, 5).all()
    assert first.loc[["single", "ddp"], "percent"].isna().all()
    assert (len(table), fact(table, "batches")) == (10, (64, 16))


@pytest.mark.parametrize("strategies", [("ddp",), ("single", "ddp"), ("single", "fsdp_full"), ("fsdp_full",)])
def test_without_two_to_compare_there_is_no_difference(tmp_path, strategies):
    table = ddp_fsdp.compared(strategies_run(tmp_path / "run", strategies=strategies))
    assert table["percent"].isna().all() and len(table) == 2 * len(strategies)


def test_what_did_not_fit_has_no_rate_and_is_not_resolved(tmp_path):
    table = ddp_fsdp.compared(strategies_run(tmp_path / "run", failed=("fsdp_root",))).set_index("strategy")
    assert set(table.loc["fsdp_root", "status"]) == {MEMORY}
    assert table.loc["fsdp_root", ["samples_per_s", "percent"]].isna().all(axis=None)
    assert not table.loc["fsdp_root", "resolved"].any()


def test_a_ladder_and_one_with_a_failed_rung(tmp_path):
    table = ddp_fsdp.ladder(knobs_run(tmp_path / "run"))
    assert table["samples_per_s"].tolist() == pytest.approx([290, 293, 750, 1700, 1600])
    assert table["times_previous"].tolist()[1:] == pytest.approx([293 / 290, 750 / 293, 1700 / 750, 1600 / 1700])
    assert table["times_first"].iloc[-1] == pytest.approx(1600 / 290)
    assert table.attrs["small"] is False
    table = ddp_fsdp.ladder(knobs_run(tmp_path / "failed", failed=("TF32",))).set_index("knob")
    assert table.loc["TF32", "status"] == MEMORY
    assert table.loc["TF32", ["samples_per_s", "times_previous"]].isna().all()
    assert table.loc["bfloat16 autocast", "times_previous"] == pytest.approx(1700 / 293)
    first = ddp_fsdp.ladder(knobs_run(tmp_path / "first", failed=("float32, unfused AdamW",)))
    assert first["times_first"].iloc[-1] == pytest.approx(1600 / 293)


def test_memory_takes_the_fullest_rank(tmp_path):
    table = ddp_fsdp.memory(strategies_run(tmp_path / "run", unexplained=0.05))
    assert len(table) == 10
    assert table["unexplained_share"].tolist() == pytest.approx([0.05] * 10)
    assert table["counted_error"].max() < 1e-9
    ddp = table.set_index(["strategy", "batch"]).loc[("ddp", 16)]
    assert ddp["parameters"] == pytest.approx(4 * 109_483_778 / MIB)
    assert ddp["predicted"] == pytest.approx(ddp["parameters":"buffers"].sum())
    on_cpu = ddp_fsdp.memory(strategies_run(tmp_path / "cpu", device="cpu", size="small", gpus=2))
    assert on_cpu[["peak", "unexplained_share"]].isna().all(axis=None)
    assert on_cpu["counted_error"].max() < 1e-9


def test_what_is_sent_is_held_against_the_formula(tmp_path):
    assert ddp_fsdp.sent(strategies_run(tmp_path / "run"))["equal"].all()
    wrong = ddp_fsdp.sent(strategies_run(tmp_path / "wrong", calls=1))
    assert not wrong["equal"].any()
    assert (wrong["counted_calls"] == wrong["calls"] + 1).all()


def met(card):
    return dict(zip(card["figure"], card["met"], strict=True))


def test_scorecard(tmp_path):
    good = scorecard_of(strategies_run(tmp_path / "good", step_ms={"single": 99.0}))
    assert met(good) == {
        "DDP's rate ÷ rate alone, 4 GPUs, batch 64": True,
        "DDP's rate ÷ rate alone, 4 GPUs, batch 16": True,
        "DDP, float32, batch 64, 4 GPUs": True,
        "largest unexplained share, of 10 peaks, 4 GPUs": True,
    }
    assert good["measured"].tolist() == pytest.approx([0.99, 0.99, 2, 640], abs=1e-3)
    near = scorecard_of(strategies_run(tmp_path / "near", step_ms={"single": 94.98}))
    assert near["met"].tolist()[:2] == ["open", "open"], "0.9498 ± 0.02 neither reaches 0.95 nor misses it"
    bad = scorecard_of(strategies_run(tmp_path / "bad", step_ms={"ddp": 160}, unexplained=0.12))
    assert not bad["met"].any()
    assert bad["measured"].iloc[2] == pytest.approx(12)
    two = scorecard_of(strategies_run(tmp_path / "two", gpus=2))
    assert not two["figure"].str.contains("415|float32").any(), "the rate is that of four GPUs"


def test_scorecards_of_other_plans(tmp_path):
    fast = scorecard_of(knobs_run(tmp_path / "fast"))
    assert met(fast) == {"fastest setting ÷ first (float32, unfused AdamW), 4 GPUs": True}
    assert not scorecard_of(knobs_run(tmp_path / "slow", (290, 300, 310, 320, 330)))["met"].any()
    for name, error in (("right", 2e-6), ("wrong", 0.2)):
        plan = Trial(device="cuda", gpus=4, size="full")
        rows = [
            (rank, vars(point) | {"entry": "trial", "iteration": 0, "loss_error": 1e-7, "update_error": error})
            for point in plan.points()
            for rank in range(4)
        ]
        run = write_run(tmp_path / name, plan, gpu_node(4), rows)
        assert scorecard_of(run)["met"].tolist() == [name == "right"]
        assert ddp_fsdp.trained(run)["equal"].tolist() == 4 * [name == "right"]
    broken = write_run(
        tmp_path / "broken", Trial(device="cuda", gpus=4, size="full", variants=("summed",)), gpu_node(4)
    )
    for rank in range(4):
        broken.append(
            rank, {"point": 0, "seed": 0, "entry": "trial", "variant": "summed", "strategy": "ddp", "update_error": 3.0}
        )
    assert scorecard_of(broken).empty, "where no variant is right, no error is to be small"
    assert scorecard_of(strategies_run(tmp_path / "cpu", device="cpu", gpus=2)).empty
    assert scorecard_of(strategies_run(tmp_path / "one", gpus=1, strategies=("single",))).empty
    assert scorecard_of(zero_run(tmp_path / "zero")).empty


def test_zero(tmp_path):
    stage = zero_run(tmp_path / "three", strategies=("zero3",), limits="zero")
    both = ddp_fsdp.zero(zero_run(tmp_path / "run"), stage)
    assert both["limits"].tolist() == [""] * 5 + ["zero"]
    table = both.set_index("strategy")
    assert table.loc["zero1", ["samples_per_s", "peak_mib", "calls"]].tolist() == pytest.approx([64e3 / 130, 9003, 7])
    assert table.loc["zero1", "link_mib"] == pytest.approx(0.75 * 3 * 400)
    assert table.loc["ddp", "link_mib"] == pytest.approx(1.5 * 4 * 109_483_778 / MIB, rel=1e-3)
    assert table.loc["fsdp_full", "peak_mib"] < table.loc["ddp", "peak_mib"]
    assert ddp_fsdp.zero(zero_run(tmp_path / "cpu", device="cpu"))["peak_mib"].isna().all()


def reported_run(folder, plan, peak_mib=None):
    """Write steps of 100 ms (plain attention: 150), and peaks."""
    rows = []
    for point in plan.points():
        who = vars(point) | {"warm_up": False}
        ms = 100.0 if point.attention == "fused" else 150.0
        held = {"peak_mib": peak_mib(point)} if peak_mib else {}
        rows += [(rank, who | {"entry": "step", "iteration": 0, "step_ms": ms}) for rank in range(plan.gpus)]
        rows += [(rank, who | {"entry": "memory"} | held) for rank in range(plan.gpus)]
    return write_run(folder, plan, gpu_node(plan.gpus), rows)


def test_memory_per_sample_is_the_slope_of_the_peak(tmp_path):
    plan = AsReported(device="cuda", gpus=4, size="full", repeats=1)
    table = ddp_fsdp.per_sample(reported_run(tmp_path / "run", plan, lambda point: 2000 + 500 * point.batch / 4))
    assert table[["attention", "dropout"]].to_numpy().tolist() == [
        [attention, dropout] for attention in ("fused", "plain") for dropout in (0.0, 0.1)
    ]
    assert table["peak_mb"].to_list() == pytest.approx([500 * MIB / 1e6] * 4)
    assert table["formula_mb"].to_list() == pytest.approx([305.5, 315.4, 456.2, 654.8], abs=0.1)
    assert table["samples_per_s"].to_list() == pytest.approx([640, 640, 64e3 / 150, 64e3 / 150])
    assert ddp_fsdp.per_sample(reported_run(tmp_path / "cpu", plan))["peak_mb"].isna().all()


def test_reports_peaks_as_memory_per_sample():
    assert list(ddp_fsdp.printed_per_sample().values()) == pytest.approx([574.6, 570.15], abs=0.01)


def test_theory_as_tables():
    held = ddp_fsdp.holdings(ranks=4).set_index("strategy")
    assert held["predicted"].idxmin() == "fsdp_full"
    assert held.loc["single", "link_mib"] == 0
    states = 0.75 * 12 * 109_483_778 / MIB  # of weights and two moments
    saved = held.loc["ddp", ["parameters", "optimizer"]] - held.loc["fsdp_full", ["parameters", "optimizer"]]
    assert saved.sum() == pytest.approx(states, rel=1e-3)


def test_the_notebooks_hints_add_up_to_the_ledger():
    cells = nbformat.read(REPOSITORY / "notebooks" / "04_ddp_fsdp.ipynb", as_version=4).cells
    hints = next(cell.source for cell in cells if "## What do you expect?" in cell.source)
    activations_gib = float(re.search(r"([\d.]+) \[GiB[^ ]* of activations", hints)[1])
    whole, rest, block = (float(figure) * 1e6 for figure in re.findall(r"([\d.]+)\smillion", hints))
    bytes_held = 12 * whole / 2 + 4 * (rest + 2 * block) + 4 * 2 * block
    held = ddp_fsdp.holdings(ranks=2, batch=32).set_index("strategy")["predicted"]["fsdp_full"]
    assert activations_gib + bytes_held / 2**30 == pytest.approx(held / 1024, abs=0.01)
