"""Lab 03's claims: each figure and verdict, and that other published figures change the verdict."""

import pandas as pd
import pytest

from labkit import claims as all_claims
from labkit.engine.run import replay
from labkit.tables.published import published
from lessons import pipeline


@pytest.fixture(scope="module")
def table():
    return all_claims.claims(pipeline).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("parameters", 109_483_778, 109_483_778, True),
        ("three_to_four", 1.29, 1403.8 / 1087.3, True),
        ("efficiency", 96.8, 75 * 1403.8 / 1087.3, True),
        ("bubble_hidden", 1.875, 10 / 7, False),
        ("stream", 1.875, 1.962, True),
        ("only_hurt", 1, 16, False),
        ("uneven_split", 0.528, 0.507, True),
        ("even_split_layers", 8, 12, False),
        ("memory_cv", 0.5105, 0.5107, True),
        ("stage_time_cv_even", 0.0485, 0.0062, None),
        ("stage_time_cv_uneven", 0.6399, 0.586, True),
        ("forward_memory", 5274.1, 535.9, False),
        ("training_memory", 5274.1, 5332.4, True),
        ("kept_memory", 9936.4, 9670.8, True),
        ("samples_per_second", 9.233, 64 * 9.233, False),
        ("steps_per_second", 64 * 12.366, 826.8, True),
        ("slower_with_more", 0.747, 8 / 7, False),
        ("memory_spread", 33.5, 33.5, True),
        ("memory_noise", 33.5, 0, False),
    ],
)
def test_figures_and_verdicts(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == pytest.approx(printed, rel=1e-3)
    assert row["recomputed"] == pytest.approx(recomputed, rel=1e-3, abs=1e-4)
    assert row["holds"] is holds


def test_claims_without_figures(table):
    assert table.loc["two_faster_than_four", "holds"] is False
    assert table.loc["two_faster_than_four", "recomputed"] == pytest.approx(1.4135, abs=1e-3)
    assert table.loc["first_help_then_hurt", "holds"] is True


def test_the_reasons_figures():
    parts = pipeline.parts(replay(pipeline.RECORDED["layers"])).query("micro_batches == 4").set_index("part")
    layers = 3 * parts["forward_ms"]["layer"]
    ends = parts["forward_ms"][["embedding", "head"]]
    stages = pd.Series([layers + ends["embedding"], layers, layers, layers + ends["head"]])
    assert stages.std(ddof=0) / stages.mean() == pytest.approx(0.015, abs=5e-4)
    layers = pd.Series([6, 2, 2, 2])
    assert layers.std(ddof=0) / layers.mean() == pytest.approx(0.577, abs=5e-4)
    held = pipeline.memory(replay(pipeline.KEPT_ACTIVATIONS)).groupby("mode")["peak_mib"].mean()
    assert (held[["kept", "training"]] / 9936.4 - 1).abs().max() < 0.04
    rates = pipeline.throughput(replay(pipeline.RECORDED["gpus"])).set_index(["mode", "ranks"])["samples_per_s"]
    assert rates["training", 4] == pytest.approx(312, abs=0.5)
    seeds = published("pipeline_ranks")
    assert seeds["samples_per_second"].max() / 12.366 == pytest.approx(0.786, abs=5e-4)
    shares = [64 * 12.366 / rates["fenced", 3], 64 * 9.233 / rates["fenced", 4]]
    assert shares == pytest.approx([0.96, 0.63], abs=0.005)
    assert pytest.approx([seeds["peak_bytes"].mean()] * 3, rel=1e-4) == [6765e6, 6452 * 2**20, 6.3 * 2**30]
    stream = pipeline.throughput(replay(pipeline.RECORDED["microbatches"])).query("mode == 'streaming'")
    rates = stream.set_index("micro_batches")["samples_per_s"]
    assert rates[2] / rates[1] == pytest.approx(1.01, abs=0.002) and rates[2:].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("file", "old", "new", "claim", "holds"),
    [
        ("pipeline_gpus", "1403.8", "1040.0", "bubble_hidden", True),
        ("pipeline_gpus", "9.233", "14.000", "slower_with_more", True),
        ("pipeline_gpus", "5274.1", "560.0", "forward_memory", True),
        ("pipeline_splits", "0.0485", "0.0065", "stage_time_cv_even", True),
        ("pipeline_splits", "0.6399", "0.6460", "stage_time_cv_uneven", None),
        ("pipeline_gpus", "12.366", "11.000", "steps_per_second", False),
        ("pipeline_statements", "109483778", "110000000", "parameters", False),
        ("pipeline_statements", "96.8", "90.0", "efficiency", False),
    ],
)
def test_other_figures_change_the_verdict(edited_claims, file, old, new, claim, holds):
    assert edited_claims(pipeline, file, (old, new)).loc[claim, "holds"] is holds
