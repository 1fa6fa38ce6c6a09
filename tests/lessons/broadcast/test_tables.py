"""Rows of lab 02 → tables, on run folders made by hand: medians, limits, factors, readings, targets."""

import math

import pandas as pd
import pytest
from made import CPU, CPU_SECONDS, H200_SECONDS, broadcast_run, gpu_node, small_broadcast, sweep_plan, write_run

from labkit.provenance import fact
from labkit.tables.goals import scorecard_of
from labkit.tables.published import published, report_names
from lessons import broadcast
from lessons.broadcast import tables
from lessons.broadcast.plan import Trial

SIZE = 4 * 2**30  # bytes
HOST, NVLINK = 64e9, 18 * 26.562e9  # an H200's rates in bytes a second, by datasheet


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return broadcast_run(tmp_path_factory.mktemp("runs") / "full")


def row(table, method, memory="pinned", chunks=1):
    return table.set_index(["method", "memory", "chunks"]).loc[(method, memory, chunks)]


@pytest.mark.parametrize(
    ("method", "chunks", "seconds"),
    [
        ("links", 64, SIZE / 4 / HOST),
        ("direct", 1, SIZE / HOST),
        ("staged", 1, SIZE / HOST + 3 * SIZE / NVLINK),
        ("nccl", 1, SIZE / HOST + SIZE / NVLINK),
        ("pipelined", 4, SIZE / HOST + 3 * SIZE / 4 / NVLINK),
        ("pipelined", 128, SIZE / HOST + 3 * SIZE / 128 / NVLINK),
        ("scatter_all_gather", 16, SIZE / 4 / HOST + 3 * SIZE / 4 / 16 / NVLINK),
    ],
)
def test_theory_by_hand(method, chunks, seconds):
    table = broadcast.least_times(sweep_plan(H200_SECONDS), "NVIDIA H200").set_index(["method", "chunks"])
    assert table.loc[(method, chunks), "least_seconds"] == pytest.approx(seconds)


@pytest.mark.parametrize("gpu", [None, "NVIDIA Unknown"])
def test_no_limit_is_guessed(gpu):
    assert broadcast.least_times(sweep_plan(H200_SECONDS), gpu)["least_seconds"].isna().all()


def test_methods_gives_medians_without_warm_ups(run):
    table = broadcast.methods(run)
    direct = row(table, "direct", "pageable")
    assert len(table) == len(H200_SECONDS)
    assert direct["seconds"] == pytest.approx(1.66)
    assert direct["spread_seconds"] == pytest.approx(0.01 * 1.66)
    assert direct["count"] == 3
    assert set(table["verdict"]) == {"ok"}
    facts = {"source": run.source, "small": False, "ranks": 4, "bytes": SIZE}
    assert {name: fact(table, name) for name in facts} == facts


def test_an_impossible_time_is_flagged(tmp_path):
    table = broadcast.methods(broadcast_run(tmp_path / "run", H200_SECONDS | {("direct", "pinned", 1): 0.03}))
    assert row(table, "direct")["verdict"] == "impossible"
    assert (table["verdict"] == "impossible").sum() == 1


def test_an_unknown_gpu_has_no_limit(tmp_path):
    table = broadcast.methods(broadcast_run(tmp_path / "run", node=gpu_node(4, "NVIDIA Unknown")))
    assert table["least_seconds"].isna().all()
    assert set(table["verdict"]) == {"no limit known"}


def test_a_wrong_copy_counts_for_nothing(tmp_path):
    wrong = {("scatter_all_gather", "pinned", 16): "wrong copy on GPU 3"}
    table = broadcast.methods(broadcast_run(tmp_path / "run", status=wrong))
    assert row(table, "scatter_all_gather", chunks=16)["status"] == "wrong copy on GPU 3"
    assert math.isnan(row(table, "scatter_all_gather", chunks=16)["seconds"])
    best = tables.best(table).set_index(["method", "memory"])
    assert best.loc[("scatter_all_gather", "pinned"), "chunks"] == 32


def test_best_takes_the_fastest_count_and_leaves_the_yardstick_out(run):
    best = tables.best(broadcast.methods(run)).set_index(["method", "memory"])
    assert len(best) == 10
    assert "links" not in best.index.get_level_values("method")
    assert best.loc[("pipelined", "pinned"), "chunks"] == 64
    assert best.loc[("scatter_all_gather", "pinned"), "seconds"] == pytest.approx(0.0217)


def test_ablation_factors(run):
    table = broadcast.ablation(broadcast.methods(run)).set_index("method")
    assert list(table.index) == ["direct", "staged", "nccl", "pipelined", "scatter_all_gather"]
    assert table.loc["direct", "pinning_gain"] == pytest.approx(1.66 / 0.083)
    assert table.loc["direct", "path_gain"] == 1
    assert table.loc["staged", "pinning_gain"] == pytest.approx(0.445 / 0.110)
    assert table.loc["pipelined", "path_gain"] == pytest.approx(0.083 / 0.0788)
    assert table.loc["scatter_all_gather", "path_gain"] == pytest.approx(0.083 / 0.0217)


def test_ablation_without_pinned_memory(tmp_path):
    table = broadcast.ablation(broadcast.methods(small_broadcast(tmp_path / "run")))
    assert table["pageable_seconds"].notna().all()
    assert table[["pinned_seconds", "pinning_gain", "path_gain"]].isna().all(axis=None)


def test_chunk_sweep_keeps_the_chunked_methods(run):
    table = broadcast.chunk_sweep(broadcast.methods(run))
    assert set(table["method"]) == {"pipelined", "scatter_all_gather"}
    assert len(table) == 12 and set(table["memory"]) == {"pinned"}
    assert fact(table, "source") == run.source
    pinned = table[table["method"] == "pipelined"].set_index("chunks")
    assert pinned.loc[4, "above_best"] == pytest.approx(0.0865 / 0.0788 - 1)
    assert pinned.loc[64, "above_best"] == 0


def test_ladder_reads_the_published_figures(run):
    """One copy is pipelined's: pageable about 10 GB/s, pinned 54. Of the ladder broadcast3 alone fits pinned."""
    table = tables.ladder(published("broadcast"), broadcast.methods(run))
    assert 9 < fact(table, "pageable") < 12
    assert fact(table, "pinned") == pytest.approx(SIZE / 0.0788 / 1e9)
    assert dict(zip(table["method"], table["nearest_memory"], strict=True)) == {
        "direct": "pageable",
        "staged": "pageable",
        "pipelined": "pinned",
    }
    first = table[table["report"] == report_names()["eml3-4xh100"]]
    assert first["copy_gb_per_s"].tolist() == pytest.approx([4 * SIZE / 1.504e9, SIZE / 0.404e9, SIZE / 0.103e9])
    assert first["copies"].tolist() == [4, 1, 1]
    assert "published" in fact(table, "source")


def spans(*rows):
    return pd.DataFrame(rows, columns=["kind", "start_ms", "end_ms"])


@pytest.mark.parametrize(
    ("table", "share"),
    [
        (spans(("host", 0, 10), ("peer", 2, 4)), 1.0),
        (spans(("host", 0, 10), ("peer", 8, 12)), 0.5),
        (spans(("host", 0, 10), ("peer", 10, 12)), 0.0),
        (spans(("host", 0, 4), ("host", 6, 10), ("peer", 2, 8)), 4 / 6),
        (spans(("host", 0, 4), ("host", 2, 6), ("peer", 3, 7), ("peer", 3, 7)), 3 / 4),  # no time counts twice
        (spans(("host", 0, 4), ("peer", 0, 2), ("peer", 1, 8)), 4 / 8),
    ],
)
def test_overlap_on_known_intervals(table, share):
    assert tables.overlap(table) == pytest.approx(share)


def test_overlap_without_forwarding_is_unknown():
    assert math.isnan(tables.overlap(spans(("host", 0, 10))))


def test_timeline(run):
    table = broadcast.timeline(run, "pipelined")
    assert fact(table, "setting") == "pinned source, 4 chunks"
    assert (table["kind"] == "host").sum() == 4
    assert (table["kind"] == "peer").sum() == 12
    assert table["end_ms"].max() == pytest.approx(86.5 * 4.4 / 5)
    assert set(broadcast.timeline(run, "pipelined", 16, "pageable")["lane"]) == {"host → 0", "0 → 1", "0 → 2", "0 → 3"}
    assert fact(broadcast.timeline(run, "direct"), "setting") == "pinned source, in one piece"
    assert tables.overlap(broadcast.timeline(run, "staged")) == 0


def test_symptoms(tmp_path):
    plan = Trial(
        device="cpu", gpus=2, mib=4, chunks=4, memory="pageable", functions=("methods.pipelined", "bugs.unsynchronised")
    )
    rows = []
    for point, function in enumerate(plan.functions):
        for iteration, seconds in enumerate((0.9, 0.02, 0.03, 0.04)):
            knobs = {"point": point, "seed": 0, "function": function, "iteration": iteration, "warm_up": iteration == 0}
            more = {"claimed_seconds": 0.001, "status": "wrong copy on GPU 1"} if point else {}
            rows.append((0, knobs | {"seconds": seconds, "source_changed": bool(point and iteration == 2)} | more))
    table = broadcast.symptoms(write_run(tmp_path / "run", plan, CPU, rows)).set_index("function")
    good, bad = table.loc["methods.pipelined"], table.loc["bugs.unsynchronised"]
    assert good["ms"] == bad["ms"] == pytest.approx(30)
    assert (good["wrong_repeats"], bad["wrong_repeats"], bad["repeats"]) == (0, 3, 3)
    assert (bool(good["source_changed"]), bool(bad["source_changed"])) == (False, True)
    assert math.isnan(good["own_clock_ms"])
    assert bad["own_clock_ms"] == 1


@pytest.mark.parametrize(
    ("changed", "measured", "met"),
    [
        ({}, [0.0217 / 0.0213, 0.0788 / 0.0217], [True, True]),
        ({("links", "pinned", 64): 0.0200}, [0.0217 / 0.02, 0.0788 / 0.0217], [False, True]),
        ({("pipelined", "pinned", 64): 0.06}, [0.0217 / 0.0213, 0.06 / 0.0217], [True, False]),
    ],
)
def test_scorecard(tmp_path, changed, measured, met):
    card = scorecard_of(broadcast_run(tmp_path / "run", H200_SECONDS | changed))
    assert list(card.columns) == ["lab", "figure", "measured", "goal", "unit", "met", "reason"]
    assert card["measured"].tolist() == pytest.approx(measured, abs=6e-4)
    assert card["met"].tolist() == met


def test_a_run_without_the_compared_methods_compares_none(tmp_path):
    few = {key: seconds for key, seconds in H200_SECONDS.items() if key[0] in ("links", "direct")}
    assert scorecard_of(broadcast_run(tmp_path / "run", few, gpus=2)).empty


def test_two_gpus_have_no_goal_that_only_four_host_links_can_reach(tmp_path):
    card = scorecard_of(broadcast_run(tmp_path / "run", gpus=2))
    assert card["met"].all() and len(card) == 1


def test_scorecard_has_no_target_for_unpinned_runs_and_trials(tmp_path):
    assert scorecard_of(small_broadcast(tmp_path / "small")).empty
    trial = Trial(device="cpu", gpus=2, mib=4, chunks=4, memory="pageable")
    assert scorecard_of(write_run(tmp_path / "trial", trial, CPU)).empty


def test_a_small_run_says_so(tmp_path):
    table = broadcast.methods(small_broadcast(tmp_path / "run"))
    assert fact(table, "small")
    assert fact(table, "source").endswith("small size")
    assert len(table) == len(CPU_SECONDS)
