"""Lab 03's claims: each figure and verdict, and that other published figures change the verdict."""

import pytest

from labkit import claims as all_claims
from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import pipeline

FIGURES = {  # printed, recomputed, holds
    "bubble_hidden": ("1.875 ×, masked", 10 / 7, None),
    "only_hurt": ("only hurt", 0.92361, True),
    "two_layers": (2, 3.0002, False),
    "both_ends": (96.2, 96.0, True),
    "samples_per_second": (9.233, 64 * 9.233, False),
    "slower_with_more": (0.747, 8 / 7, None),
    "uneven_split": (0.528, 0.507, True),
    "kept_memory": (9936.4, 9670.8, True),
    "memory_spread": (33.5, 33.477, True),
    "fast_compute": ("small", 100 * 3 / 7, None),
    "weights_distributed": ("2.402 GiB, distributed weights", 4 * 109.5e6 / 2**30, False),
    "slow_stage": ("later stages", "earlier and later stages", None),
}


def test_figures_and_verdicts():
    table = all_claims.claims(pipeline).set_index("claim")
    assert set(table.index) == set(FIGURES)
    for name, (printed, recomputed, holds) in FIGURES.items():
        row = table.loc[name]
        for figure, expected in ((row["printed"], printed), (row["recomputed"], recomputed)):
            text = isinstance(expected, str)
            assert figure == (expected if text else pytest.approx(expected, rel=1e-3, abs=1e-4)), name
        assert row["holds"] is holds, name


def test_the_reasons_figures():
    seeds = published("pipeline_ranks")
    assert seeds["samples_per_second"].max() / 12.366 < 1, "the best seed is slower than three GPUs, too"
    assert seeds.groupby("rank")["peak_bytes"].std().max() < 1e-6 * seeds["peak_bytes"].mean()
    peaks = published("pipeline_splits").query("split == '2-2-2-2'").set_index("rank")["peak_mb"]
    assert peaks[0] == peaks[3] > peaks[1] == peaks[2]
    run = replay(pipeline.RECORDED["gpus"])
    rates = pipeline.throughput(run).set_index(["mode", "ranks"])["samples_per_s"]
    assert rates["streaming", 4] / rates["streaming", 2] == pytest.approx(1.962, abs=5e-4)
    streamed = pipeline.throughput(replay(pipeline.RECORDED["microbatches"])).query("mode == 'streaming'")
    streamed = streamed.set_index("micro_batches")["samples_per_s"]
    assert streamed.idxmax() == 2 and streamed[2] / streamed[1] == pytest.approx(1.01, abs=0.005)
    assert 1403.8 / 748.5 > 10 / 7, "the report's rates exclude fenced steps"
    assert rates["fenced", 3] == pytest.approx(827, abs=0.5) and round(64 * 12.366) == 791
    assert pipeline.memory(run).query("mode == 'training' and ranks == 4")["peak_mib"].mean() == pytest.approx(
        5332, abs=0.5
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "claim", "holds"),
    [
        ("pipeline_gpus", "1403.8", "1040.0", "bubble_hidden", True),
        ("pipeline_gpus", "9.233", "15.000", "slower_with_more", False),
        ("pipeline_splits", "1,5226.2", "1,3687.0", "two_layers", True),
        ("pipeline_splits", "3,5322.4", "3,5235.0", "both_ends", False),
        ("pipeline_gpus", "8.702", "6.650", "weights_distributed", True),
        ("pipeline_statements", "idles,later", "idles,only later", "slow_stage", False),
    ],
)
def test_other_figures_change_the_verdict(edited_claims, file, old, new, claim, holds):
    assert edited_claims(pipeline, file, (old, new)).loc[claim, "holds"] is holds
