"""Rows of made-up runs → lab 10's tables: steps and parts, what was sent, the bucket sweep and its fit, targets."""

import numpy as np
import pytest
from made_ddp_from_scratch import LINE, STEP_MS, buckets_run, equality_run, implementations_run, trial_run

from labkit.tables.goals import scorecard_of
from lessons import ddp_from_scratch
from lessons.ddp_from_scratch.plan import CASES, OURS
from lessons.ddp_from_scratch.theory import NAMES, Overhead

TOTAL_MIB = 4 * 1_998_235_200 / 2**20


def test_steps_beside_the_one_that_sends_nothing_and_torchs(tmp_path):
    table = ddp_from_scratch.implementations(implementations_run(tmp_path / "run")).set_index("strategy")
    assert table["step_ms"].to_dict() == pytest.approx(STEP_MS)
    assert table["longer_ms"].to_dict() == pytest.approx({name: ms - 90 for name, ms in STEP_MS.items()})
    naive, bucketed = table.loc["naive"], table.loc["bucketed"]
    assert bucketed["over_ddp"] == pytest.approx(97 / 96)
    assert table["extra_mib"].to_dict() == {name: 7600 * (name == "flat") for name in STEP_MS}
    assert table["peak_mib"].max() == 47601, "the fullest rank's"
    assert (table["count"] == 10).all()
    assert naive["waited_ms"] == pytest.approx(32)


def test_costs_say_what_is_beyond_noise(tmp_path):
    table = ddp_from_scratch.costs(implementations_run(tmp_path / "run", step_ms={"bucketed": 90.05}))
    beyond_noise = dict(zip(table["strategy"], table["beyond noise"], strict=True))
    assert [name for name, beyond in beyond_noise.items() if not beyond] == ["nothing sent", "bucketed"]
    rows = table.set_index("strategy")
    assert rows.loc["naive", "longer than nothing sent, ms"] == pytest.approx(32)
    assert rows["GB/s"].notna().tolist() == [name in ("naive", "flat") for name in rows.index]
    assert rows.loc["flat", "extra memory, GiB"] == pytest.approx(7.42, abs=0.01)


def test_what_has_no_base_is_nan(tmp_path):
    run = implementations_run(tmp_path / "run", strategies=("flat", "bucketed"), device="cpu")
    table = ddp_from_scratch.implementations(run)
    assert table[["longer_ms", "over_ddp", "peak_mib", "extra_mib"]].isna().all(axis=None)
    assert table["step_ms"].notna().all()


def test_a_strategy_that_did_not_fit(tmp_path):
    run = implementations_run(tmp_path / "run", failed=("flat", "ddp"))
    table = ddp_from_scratch.implementations(run).set_index("strategy")
    assert table.loc["flat", "status"] == "out of memory"
    assert np.isnan(table.loc["flat", "step_ms"])
    assert table["over_ddp"].isna().all()
    assert table.loc["bucketed", "longer_ms"] == pytest.approx(7)


def test_what_was_sent_is_held_against_the_formula(tmp_path):
    table = ddp_from_scratch.overlap(implementations_run(tmp_path / "run")).set_index("strategy")
    assert table["equal"].all()
    assert table["sent_mib"].drop("none").to_list() == pytest.approx([TOTAL_MIB] * 5)
    assert (table.loc["naive", "collectives"], table.loc["flat", "collectives"]) == (435, 1)
    assert table.loc["bucketed", "last_mib"] > 61, "the embedding's gradient comes last and is never cut"
    wrong = ddp_from_scratch.overlap(implementations_run(tmp_path / "wrong", extra_call=1))
    assert not wrong["equal"].any()
    assert (wrong["collectives"] == wrong["expected"] + 1).all()


def test_a_rate_is_told_where_all_is_sent_after_backward(tmp_path):
    rates = ddp_from_scratch.costs(implementations_run(tmp_path / "run")).set_index("strategy")["GB/s"].dropna()
    assert [*rates.index] == [NAMES["naive"], NAMES["flat"]]
    assert rates.iloc[0] == pytest.approx(4 * 1.9982352 / 0.032, abs=0.005), "as much as two ranks' gradients have"


def test_a_sweep_gives_its_line_back(tmp_path):
    run = buckets_run(tmp_path / "run")
    table = ddp_from_scratch.buckets(run)
    assert table["strategy"].tolist() == ["overlapped"] + 9 * ["bucketed"]
    assert table["buckets"].iloc[0] == 435
    assert table["buckets"].is_monotonic_decreasing
    assert (table["mean_mib"] * table["buckets"]).to_list() == pytest.approx([TOTAL_MIB] * 10)
    assert table["residual"].abs().max() < 1e-3
    assert (table.attrs["none_ms"], table.attrs["ddp_ms"]) == pytest.approx((90, 100))
    (row,) = ddp_from_scratch.overhead(run).to_dict("records")
    assert row["overhead_us"] == pytest.approx(20, rel=0.01)
    assert row["gb_per_s"] == pytest.approx(100, rel=0.01)
    assert row["optimum_mib"] == pytest.approx(LINE.best_bytes(TOTAL_MIB * 2**20) / 2**20, rel=0.01)
    assert row["optimum_mib"] * row["optimum_buckets"] == pytest.approx(TOTAL_MIB)
    assert row["best_mib"] == table.loc[table["step_ms"].idxmin(), "mean_mib"]
    assert row["tied_from_mib"] <= row["best_mib"] <= row["tied_to_mib"]
    assert row["identified"]
    line = ddp_from_scratch.curve(run)
    ends = table["mean_mib"].agg(["min", "max"]).to_list()
    assert line["mean_mib"].agg(["min", "max"]).to_list() == pytest.approx(ends)
    assert line["fitted_ms"].min() == pytest.approx(row["optimum_ms"], rel=1e-3)


def test_a_flat_sweep_identifies_no_optimum(tmp_path):
    run = buckets_run(tmp_path / "run", line=Overhead(0.1, 1e-7, 1e14))
    assert ddp_from_scratch.buckets(run)["tied"].all()
    assert not ddp_from_scratch.overhead(run)["identified"].item()
    rising = buckets_run(tmp_path / "rising", line=Overhead(0.1, 1e-4, float("inf")))
    (row,) = ddp_from_scratch.overhead(rising).to_dict("records")
    assert np.isnan(row["optimum_mib"])
    assert row["gb_per_s"] > 1e4
    assert not row["identified"], "the largest bucket is the fastest: nobody knows what a larger one would do"


def test_two_sizes_are_no_sweep(tmp_path):
    run = buckets_run(tmp_path / "run", buckets_mb=(1, 100))
    assert ddp_from_scratch.overhead(run).empty
    assert ddp_from_scratch.curve(run).empty
    assert ddp_from_scratch.buckets(run)["fitted_ms"].isna().all()


def test_equality_tells_by_case(tmp_path):
    good = equality_run(tmp_path / "good")
    assert ddp_from_scratch.equality(good)["equal"].all()
    assert (ddp_from_scratch.equality(good).groupby("case")["strategy"].nunique() == len(OURS)).all()
    table = ddp_from_scratch.cases(equality_run(tmp_path / "coarse", gradient_error=5e-3)).set_index("case")
    assert table.index.tolist() == list(CASES)
    assert table["meaning"].notna().all()
    assert table.index[table["right"]].tolist() == ["bfloat16", "mixed"]
    assert table["error"].tolist() == [5e-3] * len(CASES)


@pytest.mark.parametrize(
    "wrong", [{"weight_error": 0.1}, {"buffer_error": 0.1}, {"apart": 1e-9}, {"none_right": False}], ids=str
)
def test_one_fault_on_one_rank_is_enough(tmp_path, wrong):
    assert not ddp_from_scratch.equality(equality_run(tmp_path / "run", **wrong))["equal"].any()


def test_symptoms_are_the_worst_ranks_beside_rank_0s(tmp_path):
    run = trial_run(tmp_path / "run", error=0.6, later_error=0.5)
    (row,) = ddp_from_scratch.symptoms(run).to_dict("records")
    assert (row["error_rank_0"], row["error_worst"], row["error_later"]) == (1e-7, 0.6, 0.5)
    assert row["collectives"] == row["expected"] > 5


def test_a_goal_inside_the_spread_is_open(tmp_path):
    """Rounds that take 20 % more or less than their median decide nothing about 3 %."""
    runs = {
        "steps": implementations_run(tmp_path / "steps", step_ms={"bucketed": 100}, noise=(-0.2, 0.2, 0.0, 0.1, -0.1)),
        "sweep": buckets_run(tmp_path / "sweep", noise=(-0.2, 0.2, 0.0, 0.1, -0.1)),
    }
    for run in runs.values():
        assert scorecard_of(run)["met"].tolist() == ["open"]


def test_scorecard(tmp_path):
    good = scorecard_of(implementations_run(tmp_path / "good"))
    assert good["figure"].str.len().max() <= 50
    assert good["measured"].tolist() == pytest.approx([1.01], abs=1e-3)
    assert good["met"].tolist() == [True]
    bad = scorecard_of(implementations_run(tmp_path / "bad", step_ms={"bucketed": 100}))
    assert bad["measured"].tolist() == pytest.approx([1.042], abs=1e-3)
    assert bad["met"].tolist() == [False]
    assert scorecard_of(buckets_run(tmp_path / "sweep"))["met"].tolist() == [True]
    assert scorecard_of(buckets_run(tmp_path / "slow", ddp_ms=80.0))["met"].tolist() == [False]
    without = scorecard_of(implementations_run(tmp_path / "without", strategies=("none", "bucketed")))
    assert without.empty, "there is nothing to compare with"
    assert scorecard_of(implementations_run(tmp_path / "cpu", device="cpu")).empty
    assert scorecard_of(implementations_run(tmp_path / "batch", samples=16)).empty, "a report's batch"
