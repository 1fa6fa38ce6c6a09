"""Rates come from datasheets or not at all, and a measurement that beats them is told from one that does not."""

import math

import machines
import pandas as pd
import pytest

from labkit.node.limits import (
    against_limit,
    all_specs,
    bus_bandwidth_limit,
    least_seconds_to_compute,
    least_seconds_to_move,
    ring_bus_limit_gb_per_s,
    spec,
)

H100, H200 = spec("NVIDIA H100 80GB HBM3"), spec("NVIDIA H200")


def test_a_gpu_is_known_by_the_name_that_nvidia_smi_prints():
    assert H200.hbm_gb_per_s == 4800
    assert spec(" nvidia  h200 ") is H200
    assert [spec(f"NVIDIA A100-SXM4-{size}GB").hbm_gb_per_s for size in (40, 80)] == [1555, 2039]
    assert spec("A100-SXM4-40GB") is spec("NVIDIA A100-SXM4-40GB")
    assert spec("Tesla T4") is spec("NVIDIA T4")


@pytest.mark.parametrize("name", ["NVIDIA H100", "H100 80GB", "A100", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "", None])
def test_a_name_that_fits_no_sheet_exactly_has_no_limit(name):
    assert spec(name) is None


def test_every_sheet_is_plausible():
    for sheet in all_specs().values():
        assert sheet.source
        assert 2 <= sheet.hbm_gb_per_s / sheet.memory_gb <= 100
        rates = (sheet.fp32_tflops, sheet.tf32_tflops, sheet.bf16_tflops, sheet.fp16_tflops, sheet.fp8_tflops)
        stated = [rate for rate in rates if rate is not None]
        assert stated == sorted(stated), sheet.name
        assert sheet.fp8_tflops is None or sheet.fp8_tflops == pytest.approx(2 * sheet.fp16_tflops, rel=0.02)
        assert (sheet.nvlink_gb_per_s_per_link is None) == (sheet.nvlink_links == 0)


def test_precisions():
    assert H100.tflops("bf16") == 989.5
    assert spec("Tesla T4").tflops("bf16") is None
    with pytest.raises(ValueError, match="'int3' is none of fp32, tf32, bf16, fp16, fp8"):
        H100.tflops("int3")


def test_least_times_of_numbers_and_columns():
    assert least_seconds_to_move(4.8e12, H200.hbm_gb_per_s) == pytest.approx(1)
    assert least_seconds_to_compute(989.5e12, H200.bf16_tflops) == pytest.approx(1)
    assert list(least_seconds_to_move(pd.Series([1e9, 2e9]), 2)) == [0.5, 1.0]
    assert math.isnan(least_seconds_to_move(1e9, None))
    assert math.isnan(least_seconds_to_compute(1e9, None))


def test_ring_limit_is_the_nvlinks_or_else_pcie():
    assert ring_bus_limit_gb_per_s(H200) == pytest.approx(478.1, abs=0.1)
    assert ring_bus_limit_gb_per_s(spec("NVIDIA L40S")) == 32
    assert ring_bus_limit_gb_per_s(None) is None


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (3, 1.0), (4, 1.2), (8, 14 / 9)])
def test_in_switch_reduction_may_beat_the_ring_from_four_ranks_on(ranks, factor):
    ring = ring_bus_limit_gb_per_s(H200)
    assert bus_bandwidth_limit(H200, ranks, "all-reduce") == pytest.approx(factor * ring)
    assert bus_bandwidth_limit(H200, ranks, "all-gather") == ring


def test_bus_limits_need_a_datasheet_and_two_ranks():
    assert bus_bandwidth_limit(None, 8, "all-reduce") is None
    with pytest.raises(ValueError, match="2 ranks or more, not 1"):
        bus_bandwidth_limit(H200, 1, "all-reduce")


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("measured", "limit", "share", "verdict"),
    [
        (101.9, 100, 1.019, "ok"),
        (102.1, 100, 1.021, "impossible"),
        (9, 100, 0.09, "suspiciously low"),
        (10, 100, 0.1, "ok"),
        (0, 100, 0.0, "suspiciously low"),
        (-5, 100, -0.05, "impossible"),
        (INF, 100, INF, "impossible"),
        (NAN, 100, NAN, "not measured"),
        (50, NAN, NAN, "no limit known"),
        (50, None, NAN, "no limit known"),
        (50, 0, NAN, "no limit known"),
        (-5, NAN, NAN, "impossible"),
    ],
)
def test_rates(measured, limit, share, verdict):
    row = against_limit(pd.DataFrame({"gb_per_s": [measured]}), "gb_per_s", limit, low=0.1).iloc[0]
    assert row.verdict == verdict
    assert row.share_of_limit == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize(
    ("measured", "least", "share", "verdict"),
    [
        (0.99, 1.0, 1 / 0.99, "ok"),
        (0.97, 1.0, 1 / 0.97, "impossible"),
        (20.0, 1.0, 0.05, "suspiciously low"),
        (0.0, 1.0, INF, "impossible"),
        (0.0, NAN, NAN, "impossible"),
        (INF, 1.0, 0.0, "suspiciously low"),
        (NAN, 1.0, NAN, "not measured"),
        (1.0, NAN, NAN, "no limit known"),
    ],
)
def test_times(measured, least, share, verdict):
    table = pd.DataFrame({"seconds": [measured], "least_seconds": [least]})
    row = against_limit(table, "seconds", "least_seconds", kind="time", low=0.1).iloc[0]
    assert row.verdict == verdict
    assert row.share_of_limit == pytest.approx(share, nan_ok=True)
    assert row.limit == pytest.approx(least, nan_ok=True)


def test_what_is_low_says_the_caller():
    table = pd.DataFrame({"gb_per_s": [0.0, 1.0, 110.0]})
    low = "suspiciously low"
    assert list(against_limit(table, "gb_per_s", 100).verdict) == [low, "ok", "impossible"]
    assert list(against_limit(table, "gb_per_s", 100, low=0.5).verdict) == [low, low, "impossible"]


def test_the_table_is_copied_and_its_rows_stay():
    table = pd.DataFrame({"gb_per_s": [50.0, 500.0]}, index=[7, 7])
    checked = against_limit(table, "gb_per_s", 100)
    assert list(table.columns) == ["gb_per_s"]
    assert list(checked.columns) == ["gb_per_s", "limit", "share_of_limit", "verdict"]
    assert list(checked.index) == [7, 7] and list(checked.verdict) == ["ok", "impossible"]


def test_nullable_integer_and_empty_columns():
    for kind in ("Int64", object):
        table = pd.DataFrame({"s": pd.Series([1, None], dtype=kind)})
        assert list(against_limit(table, "s", 2).verdict) == ["ok", "not measured"]
    assert against_limit(pd.DataFrame({"s": []}), "s", 2).verdict.empty


def test_wrong_calls_are_named():
    table = pd.DataFrame({"gb_per_s": [1.0]})
    with pytest.raises(ValueError, match="'seconds' is no column of this table; it has gb_per_s"):
        against_limit(table, "seconds", 1)
    with pytest.raises(ValueError, match="'nominal' is no column"):
        against_limit(table, "gb_per_s", "nominal")
    with pytest.raises(ValueError, match='kind is "rate" or "time"'):
        against_limit(table, "gb_per_s", 1, kind="speed")


def test_published_attention_times_that_no_h100_reaches_are_flagged():
    """Forward writes and reads float32 scores of batch 8: from sequence 4096 on, that alone takes longer."""
    table = pd.read_csv(machines.ROOT / "data/published/attention.csv").query("mode == 'eager'")
    score_bytes = 2 * 8 * table.sequence**2 * 4
    table = table.assign(least_seconds=least_seconds_to_move(score_bytes, H100.hbm_gb_per_s))
    checked = against_limit(table, "forward_seconds", "least_seconds", kind="time")
    by_sequence = checked.groupby("sequence").verdict.unique()
    assert list(by_sequence[16384]) == list(by_sequence[8192]) == ["impossible"]
    assert list(by_sequence[256]) == list(by_sequence[1024]) == ["ok"]
    assert set(checked.query("verdict == 'impossible'").sequence) == {4096, 8192, 16384}
    assert checked.query("sequence == 16384").share_of_limit.max() > 20
    backward = against_limit(table, "backward_seconds", "least_seconds", kind="time")
    assert "impossible" not in set(backward.verdict)
